from __future__ import annotations

import math

import numpy as np
import pytest

from tests.build import TraceBuilder
from tests.unit.findings.learners import learner
from tests.unit.findings.rules.saying import finding_in, missing, passed, value

EVERYWHERE = {"reward": math.nan, "reward_std": math.nan}


def sick() -> TraceBuilder:
    return learner(EVERYWHERE)


def well() -> TraceBuilder:
    return learner()


def test_on_all_steps() -> None:
    finding = finding_in(sick(), "GD058")
    assert finding.severity == "high"
    assert finding.headline == "The reward is missing (NaN or None) at every step"
    assert value(finding, "steps whose reward is not a number") == 80
    assert finding.steps == ()
    assert finding.cost == pytest.approx(9.2 / 9.85, abs=0.01)


@pytest.mark.parametrize(("every", "severity"), [(2, "high"), (20, "medium"), (79, "low")])
def test_on_some_steps(every: int, severity: str) -> None:
    lost = (np.arange(80) + 1) % every == 0
    finding = finding_in(learner({"reward": lambda t, v, r: np.where(lost, np.nan, v)}), "GD058")
    assert finding.severity == severity
    assert finding.steps == tuple(range(every, 81, every))
    assert f"at {lost.sum()} of 80 steps" in finding.headline


def test_the_function_is_named() -> None:
    nan = {**EVERYWHERE, "rewards/accuracy/mean": math.nan}
    assert "NaN comes from accuracy" in finding_in(learner(nan), "GD058").cause


def test_some_completions_of_each_step() -> None:
    finding = finding_in(learner({"rewards/missing_ratio": 0.3}), "GD058")
    assert finding.severity == "high"
    assert value(finding, "completions without a reward") == pytest.approx(30)
    assert value(finding, "steps whose reward is not a number") == 0


def test_infinite_is_said_as_such() -> None:
    build = learner({"reward": lambda t, v, r: np.where(t == 1, math.inf, v)})
    assert "infinite at 1 of 80" in finding_in(build, "GD058").headline


def test_a_step_that_says_nothing_is_not_a_nan() -> None:
    build = learner()
    build.metrics(81, loss=0.1)
    passed(build, "GD058")
    assert "metric `reward`" in missing(learner({"reward": None}), "GD058")


def test_infinite_and_missing_together_are_missing() -> None:
    def odd(t: np.ndarray, v: np.ndarray, r: np.random.Generator) -> np.ndarray:
        return np.where(t == 1, math.inf, np.where(t == 0, math.nan, v))

    assert (
        "missing (NaN or None) at 2 of 80" in finding_in(learner({"reward": odd}), "GD058").headline
    )
