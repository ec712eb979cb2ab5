from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from grpo_doctor.findings.rules.gd064_broken_metrics import MAX_LOST_GRADIENTS
from tests.build import TraceBuilder
from tests.unit.findings.learners import learner
from tests.unit.findings.rules.saying import finding_in, missing, passed, value

UPDATES = ("loss", "grad_norm", "kl", "entropy")


def sick() -> TraceBuilder:
    return learner({"kl": lambda t, v, r: np.where(np.arange(len(t)) >= 60, math.nan, v)})


def well() -> TraceBuilder:
    return learner()


def lost(key: str, at: Any, bad: float = math.nan, **more: Any) -> TraceBuilder:
    return learner({key: lambda t, v, r: np.where(at(np.arange(1, len(t) + 1)), bad, v)}, **more)


@pytest.mark.parametrize("key", UPDATES)
@pytest.mark.parametrize(("bad", "word"), [(math.nan, "NaN"), (math.inf, "infinite")])
@pytest.mark.parametrize("first", [1, 2, 41, 79])
def test_the_first_step_is_named_and_the_run_is_ruined(
    key: str, bad: float, word: str, first: int
) -> None:
    finding = finding_in(lost(key, lambda step: step >= first, bad), "GD064")
    when = "at every step" if first == 1 else f"from step {first} on"
    assert finding.headline.endswith(f"is {word} {when}")
    assert value(finding, "first at step") == first
    assert (finding.severity, finding.ruins) == ("high", True)


def test_the_earliest_leads_and_the_others_follow() -> None:
    late = {
        key: np.where(np.arange(80) >= at, math.nan, 0.5) for key, at in (("loss", 50), ("kl", 30))
    }
    finding = finding_in(learner(late), "GD064")
    assert finding.headline == "The KL divergence is NaN from step 31 on"
    assert "`loss` is NaN from step 51 on" in finding.cause


@pytest.mark.parametrize("count", [1, 2, 3])
def test_one_gradient_in_a_hundred_may_be_a_loss_scale_being_found(count: int) -> None:
    finding = finding_in(
        lost("grad_norm", lambda step: step <= count, math.inf, steps=200), "GD064"
    )
    ruined = count > 200 * MAX_LOST_GRADIENTS
    assert (finding.severity, finding.ruins) == (("high", True) if ruined else ("medium", False))
    assert f"infinite at {count} of 200 steps, first at step 1" in finding.headline


def test_a_single_odd_step_and_other_metrics_ruin_nothing() -> None:
    for build in (
        lost("kl", lambda step: step == 80),
        lost("clip_ratio/region_mean", lambda step: step > 9),
    ):
        finding = finding_in(build, "GD064")
        assert (finding.severity, finding.ruins) == ("low", False)


@pytest.mark.parametrize(("steps", "severity"), [(1, "medium"), (3, "high"), (80, "high")])
def test_a_gradient_of_exactly_zero_changes_no_weight(steps: int, severity: str) -> None:
    finding = finding_in(learner({"grad_norm": 0.0, "loss": 0.0}, steps=steps), "GD064")
    assert finding.severity == severity
    assert "no weight changes" in finding.cause
    alike = {"grad_norm": 0.0, "reward": 1.0, "reward_std": 0.0}
    if steps < 5:
        found = finding_in(learner(alike, steps=steps), "GD064")
        assert "the same reward" in found.cause
        assert "finer rewards" in str(found.fixes[0])
    else:
        assert "see GD059" in passed(learner(alike, steps=steps), "GD064")


def test_a_loss_that_never_changes_unless_it_is_zero() -> None:
    assert "0.0123 at all 80 steps" in finding_in(learner({"loss": 0.0123}), "GD064").headline
    passed(learner({"loss": 0.0}), "GD064")
    passed(learner({"loss": 0.0123}, steps=4), "GD064")


def test_without_metrics_there_is_nothing_to_judge() -> None:
    assert "metric `loss`" in missing(learner(steps=0), "GD064")
