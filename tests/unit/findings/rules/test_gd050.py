from __future__ import annotations

import math

import numpy as np
import pytest

from tests.build import TraceBuilder
from tests.unit.findings.learners import learner
from tests.unit.findings.rules.saying import finding_in, missing, not_applicable, passed, value


def sick() -> TraceBuilder:
    return learner({"frac_reward_zero_std": lambda t, v, r: r.binomial(32, 0.6, len(t)) / 32})


def well() -> TraceBuilder:
    return learner()


def test_the_share_is_said_in_time_of_the_step() -> None:
    finding = finding_in(sick(), "GD050")
    assert finding.severity == "medium"
    assert value(finding, "mean of the run") == pytest.approx(60, abs=2)
    # Rollout 5, reward 0.2, log-probs 1 and train 3 of 9.85 s.
    assert finding.cost == pytest.approx(0.6 * 9.2 / 9.85, abs=0.02)
    assert value(finding, "spent on them") == pytest.approx(0.6 * 9.2, abs=0.3)
    assert all(fix.predicted is None for fix in finding.fixes)


def test_ms_swift_has_a_flag_for_it() -> None:
    first, generations, _ = finding_in(sick(), "GD050").fixes
    assert first.spelling == "--dynamic_sample true"
    assert (generations.knob, generations.after) == ("rollout.num_generations", 16)


def test_missing_rewards_are_not_told_as_equal_ones() -> None:
    everywhere = {"reward": math.nan, "reward_std": math.nan, "frac_reward_zero_std": 1.0}
    assert "GD058" in not_applicable(learner(everywhere), "GD050")
    partly = {"rewards/missing_ratio": 0.6, "frac_reward_zero_std": 0.65}
    assert "5% of the groups" in passed(learner(partly), "GD050")


def test_some_steps_without_rewards_leave_the_others_to_be_judged() -> None:
    lost = np.arange(80) % 4 == 0
    build = learner(
        {
            "reward": lambda t, v, r: np.where(lost, np.nan, v),
            "frac_reward_zero_std": np.where(lost, 1.0, 0.1),
        }
    )
    assert "10% of the groups" in passed(build, "GD050")


def test_a_reward_that_is_constant_is_another_rules() -> None:
    build = learner({"reward": 0.0, "reward_std": 0.0, "frac_reward_zero_std": 1.0})
    assert "GD059" in not_applicable(build, "GD050")


def test_one_unlucky_step_is_no_finding() -> None:
    build = learner({"frac_reward_zero_std": [0, 0, 1, 1, 0, 0]}, steps=6)
    passed(build, "GD050")


def test_a_framework_that_does_not_log_it_is_told_the_key() -> None:
    assert "frac_reward_zero_std" in missing(learner({"frac_reward_zero_std": None}), "GD050")
