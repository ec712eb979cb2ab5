from __future__ import annotations

import math

import numpy as np
import pytest

from tests.build import TraceBuilder
from tests.unit.findings.learners import learner
from tests.unit.findings.rules.saying import finding_in, missing, not_applicable, passed, value


def sick() -> TraceBuilder:
    return learner({"kl": lambda t, v, r: v + np.where(t > 0.5, 6 * (t - 0.5), 0)})


def well() -> TraceBuilder:
    return learner()


def test_the_onset_is_said() -> None:
    finding = finding_in(sick(), "GD055")
    assert finding.severity == "high"
    assert value(finding, "last tenth") == pytest.approx(2.8, abs=0.2)
    assert value(finding, "from step") == pytest.approx(47, abs=3)


def test_no_number_is_a_finding_and_a_single_one_is_not() -> None:
    many = learner({"kl": lambda t, v, r: np.where(t > 0.9, math.inf, v)})
    finding = finding_in(many, "GD055")
    assert finding.severity == "high"
    assert "no number at 8 of 80" in finding.cause
    passed(learner({"kl": lambda t, v, r: np.where(t == 1, math.inf, v)}), "GD055")
    assert finding_in(learner({"kl": math.nan}), "GD055").severity == "high"


def test_one_odd_token_is_no_blow_up() -> None:
    passed(learner({"kl": lambda t, v, r: np.where(t == 1, 50.0, v)}), "GD055")


def test_without_a_reference_there_is_no_question() -> None:
    assert "metric `kl`" in missing(learner({"kl": None}), "GD055")
    assert "fewer than 10" in not_applicable(learner(steps=4), "GD055")


def test_the_kl_term_gets_heavier() -> None:
    flat = {"reward": lambda t, v, r: 0.5 + r.normal(0, 0.05, len(t))}
    build = learner({**flat, "kl": 1.0}, knobs={"train.beta": 0.01})
    assert "the reward rises with it" in passed(learner({"kl": 1.0}), "GD055")
    finding = finding_in(build, "GD055")
    assert finding.severity == "medium"
    assert [fix.after for fix in finding.fixes if fix.knob == "train.beta"] == [0.02]
