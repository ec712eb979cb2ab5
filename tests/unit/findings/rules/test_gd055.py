from __future__ import annotations

import math

import numpy as np
import pytest

from tests.build import TraceBuilder
from tests.unit.findings.learners import learner
from tests.unit.findings.rules.saying import finding_in, missing, passed, value


def sick() -> TraceBuilder:
    return learner({"kl": lambda t, v, r: v + np.where(t > 0.5, 6 * (t - 0.5), 0)})


def well() -> TraceBuilder:
    return learner()


def test_the_onset_is_said() -> None:
    finding = finding_in(sick(), "GD055")
    assert finding.severity == "high"
    assert value(finding, "last tenth") == pytest.approx(2.8, abs=0.2)
    assert value(finding, "from step") == pytest.approx(47, abs=3)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_no_number_is_no_large_value(bad: float) -> None:
    many = learner({"kl": lambda t, v, r: np.where(t > 0.9, bad, v)})
    assert "from step 73 on, see GD058 and GD064" in missing(many, "GD055")
    assert "at every step" in missing(learner({"kl": bad}), "GD055")
    one = learner({"kl": lambda t, v, r: np.where(t == 1, bad, v)})
    assert "at 1 of 80 steps, first at step 80: not counted here" in passed(one, "GD055")


def test_one_odd_token_is_no_blow_up() -> None:
    passed(learner({"kl": lambda t, v, r: np.where(t == 1, 50.0, v)}), "GD055")


def test_without_a_reference_there_is_no_question() -> None:
    assert "metric `kl`" in missing(learner({"kl": None}), "GD055")
    assert "at 10 steps or more: this run has 4" in missing(learner(steps=4), "GD055")


def test_the_kl_term_gets_heavier() -> None:
    flat = {"reward": lambda t, v, r: 0.5 + r.normal(0, 0.05, len(t))}
    build = learner({**flat, "kl": 1.0}, knobs={"train.beta": 0.01})
    assert "the reward rises with it" in passed(learner({"kl": 1.0}), "GD055")
    finding = finding_in(build, "GD055")
    assert finding.severity == "medium"
    assert [fix.after for fix in finding.fixes if fix.knob == "train.beta"] == [0.02]
