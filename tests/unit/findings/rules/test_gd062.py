from __future__ import annotations

import math

import numpy as np
import pytest

from grpo_doctor.findings.rules.gd062_gradient_norm import spiking
from tests.build import TraceBuilder
from tests.unit.findings.learners import learner
from tests.unit.findings.rules.saying import finding_in, missing, not_applicable, passed, value


def sick() -> TraceBuilder:
    return learner({"grad_norm": lambda t, v, r: np.where(np.arange(len(t)) % 40 == 10, 900.0, v)})


def well() -> TraceBuilder:
    return learner()


def test_a_spike_has_its_step() -> None:
    finding = finding_in(sick(), "GD062")
    assert finding.steps == (11, 51)
    assert value(finding, "largest") == 900
    assert value(finding, "usual norm") == pytest.approx(math.exp(-1), rel=0.2)


def test_with_clipping_it_does_less_harm() -> None:
    spike = {"grad_norm": lambda t, v, r: np.where(np.arange(len(t)) % 40 == 10, 900.0, v)}
    assert (
        finding_in(learner(spike, knobs={"train.max_grad_norm": 0.0}), "GD062").severity == "medium"
    )
    assert finding_in(learner(spike, knobs={"train.max_grad_norm": 1.0}), "GD062").severity == "low"


def test_one_spike_that_is_clipped_is_one_odd_batch() -> None:
    spike = {"grad_norm": lambda t, v, r: np.where(t == 1, 900.0, v)}
    assert (
        finding_in(learner(spike, knobs={"train.max_grad_norm": 0.0}), "GD062").severity == "medium"
    )
    clipped = learner(spike, knobs={"train.max_grad_norm": 1.0})
    assert "gradients are clipped" in passed(clipped, "GD062")


def test_growth_is_told_from_spikes() -> None:
    finding = finding_in(learner({"grad_norm": lambda t, v, r: v * 10 ** (2 * t)}), "GD062")
    assert "grew" in finding.headline
    assert finding.steps == ()


def test_steps_without_a_gradient_make_no_spikes() -> None:
    zeros = {"grad_norm": lambda t, v, r: np.where(r.random(len(t)) < 0.7, 0.0, v)}
    passed(learner(zeros), "GD062")


def test_rounding_is_no_gradient() -> None:
    rounding = {"grad_norm": lambda t, v, r: np.where(np.arange(len(t)) % 10 < 7, 1e-17, v)}
    passed(learner(rounding), "GD062")


def test_nothing_said_and_too_few() -> None:
    assert "grad_norm" in missing(learner({"grad_norm": None}), "GD062")
    assert "at 20 steps or more: this run has 5" in missing(learner(steps=5), "GD062")


def growing(first: float, middle: list[float], last: float) -> list[float]:
    return [first] * 8 + middle + [last] * 8


@pytest.mark.parametrize(
    ("norms", "grew"),
    [
        (growing(0.5, list(np.linspace(0.5, 5.0, 64)), 5.0), True),
        (growing(0.5, list(np.linspace(0.5, 4.9, 64)), 4.9), False),
        # Ten times as large as at first, and all the time on its way down.
        (growing(0.5, list(np.linspace(10.0, 5.0, 64)), 5.0), False),
        (growing(0.5, list(np.linspace(0.5, 1.0, 64)), 1.0), False),
    ],
)
def test_a_norm_grows_tenfold_and_steadily(norms: list[float], grew: bool) -> None:
    if grew:
        assert (
            finding_in(learner({"grad_norm": norms}), "GD062").headline
            == "The gradient norm grew 10-fold"
        )
    else:
        assert "median" in passed(learner({"grad_norm": norms}), "GD062")


@pytest.mark.parametrize("usual", [0.01, 1.0, 50.0])
def test_a_spike_is_more_than_ten_times_the_usual(usual: float) -> None:
    at, beyond = (spiking(np.array([usual] * 9 + [usual * times])) for times in (9.99, 10.01))
    assert not at.any()
    assert beyond.tolist() == [False] * 9 + [True]
    assert not spiking(np.array([1.0] * 9 + [10.0])).any()


def test_what_rounding_leaves_is_no_gradient() -> None:
    assert "0 of 80 steps have a gradient" in not_applicable(learner({"grad_norm": 1e-6}), "GD062")
    assert "median 1.1e-06" in passed(learner({"grad_norm": 1.1e-6}), "GD062")
