from __future__ import annotations

import numpy as np
import pytest

from tests.build import TraceBuilder
from tests.unit.findings.learners import learner
from tests.unit.findings.rules.saying import (
    answer_to,
    finding_in,
    missing,
    not_applicable,
    passed,
    value,
)

KEY = "clip_ratio/region_mean"


def sick() -> TraceBuilder:
    return learner({KEY: lambda t, v, r: np.where(t < 0.5, v, 0.25 + 0.02 * r.random(len(t)))})


def well() -> TraceBuilder:
    return learner()


def test_a_late_half_is_graded_by_its_end() -> None:
    finding = finding_in(sick(), "GD053")
    assert finding.severity == "medium"
    assert value(finding, "last tenth") == pytest.approx(26, abs=1)
    assert value(finding, "from step") == pytest.approx(41, abs=2)


def test_passes_over_a_rollout_come_first() -> None:
    build = learner({KEY: 0.5}, knobs={"train.num_iterations": 4, "train.max_grad_norm": 5.0})
    finding = finding_in(build, "GD053")
    assert finding.severity == "high"
    assert finding.fixes[0].knob == "train.num_iterations"
    assert finding.fixes[-1].knob == "train.max_grad_norm"


def test_ratios_per_sequence_clip_by_design() -> None:
    build = learner({KEY: 0.3}, knobs={"train.importance_level": "sequence"})
    assert "by design" in not_applicable(build, "GD053")


def test_a_policy_that_clips_much_until_it_is_lost() -> None:
    def lost(t: np.ndarray, v: np.ndarray, r: object) -> np.ndarray:
        return np.where((np.arange(len(t)) > 0) & (np.arange(len(t)) < 4), 0.45, 0.0)

    finding = finding_in(learner({KEY: lost}), "GD053")
    assert (finding.severity, finding.steps) == ("medium", (2, 3, 4))
    assert value(finding, "in steps 2 to 4") == pytest.approx(45.0)
    assert finding.fixes


def test_one_step_of_much_clipping_is_noise() -> None:
    build = learner({KEY: lambda t, v, r: np.where(np.arange(len(t)) == 40, 0.9, v)})
    passed(build, "GD053")
    assert "clip" in missing(learner({KEY: None}), "GD053")


@pytest.mark.parametrize(
    ("rule", "key", "share", "severity"),
    [
        ("GD053", KEY, 0.1, "low"),
        ("GD053", KEY, 0.2, "medium"),
        ("GD053", KEY, 0.4, "high"),
        ("GD055", "kl", 0.5, "medium"),
        ("GD055", "kl", 2.0, "high"),
        ("GD060", "sampling/sampling_logp_difference/mean", 0.05, "low"),
    ],
)
def test_what_reaches_a_grade_has_it_from_the_first_step(
    rule: str, key: str, share: float, severity: str
) -> None:
    falls = {"reward": lambda t, v, r: 1 - t}
    finding = finding_in(learner({key: share, **falls}), rule)
    assert finding.severity == severity
    if share > 0.1:  # where the mean of three equal numbers is that number
        assert value(finding, "from step") <= 1
    below = answer_to(learner({key: 0.999 * share, **falls}), rule)
    assert getattr(below, "severity", "none") != severity


@pytest.mark.parametrize(
    ("share", "severity"), [(0.4, "medium"), (0.39, "low"), (0.2, "low"), (0.19, None)]
)
def test_three_steps_count_from_a_fifth_on(share: float, severity: str | None) -> None:
    shares = np.zeros(80)
    shares[10:13] = share
    build = learner({KEY: shares})
    if severity is None:
        passed(build, "GD053")
    else:
        finding = finding_in(build, "GD053")
        assert (finding.severity, finding.steps) == (severity, (11, 12, 13))
