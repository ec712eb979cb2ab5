from __future__ import annotations

import numpy as np
import pytest

from tests.build import TraceBuilder
from tests.unit.findings.learners import learner
from tests.unit.findings.rules.saying import finding_in, missing, passed, value


def sick() -> TraceBuilder:
    return learner({"reward": 0.5, "reward_std": 0.0, "frac_reward_zero_std": 1.0})


def well() -> TraceBuilder:
    return learner()


def test_from_the_first_step() -> None:
    finding = finding_in(sick(), "GD059")
    assert finding.severity == "high"
    assert finding.headline == "The reward is 0.5 for every completion at every step"
    assert value(finding, "flat steps") == 100
    assert finding.cost == pytest.approx(9.2 / 9.85, abs=0.01)
    assert finding.steps == ()


def test_solved_on_the_way() -> None:
    build = learner(
        {
            "reward": lambda t, v, r: np.minimum(1, 0.2 + 1.6 * t),
            "reward_std": lambda t, v, r: np.where(0.2 + 1.6 * t >= 1, 0, 0.3),
        }
    )
    finding = finding_in(build, "GD059")
    assert finding.severity == "medium"
    assert finding.headline == "The task is solved at step 41"
    assert finding.steps[0] == 41


def test_a_policy_that_was_better_before_is_lost() -> None:
    build = learner(
        {
            "reward": lambda t, v, r: np.where(t < 0.4, 0.6, 0.0),
            "reward_std": lambda t, v, r: np.where(t < 0.4, 0.3, 0.0),
        }
    )
    finding = finding_in(build, "GD059")
    assert finding.severity == "high"
    assert finding.headline.startswith("The policy is lost: the reward is 0 for every completion")
    assert "learning rate" in finding.fixes[0].spelling
    assert "checkpoint before step 33" in finding.fixes[-1].spelling


def test_a_few_flat_steps_at_the_end_or_at_the_start() -> None:
    late = {
        "reward": lambda t, v, r: np.where(t > 0.9, 1.0, v),
        "reward_std": lambda t, v, r: np.where(t > 0.9, 0.0, v),
    }
    assert "of the steps, towards the end" in passed(learner(late), "GD059")
    early = {
        "reward": lambda t, v, r: np.where(t < 0.3, 0.0, v),
        "reward_std": lambda t, v, r: np.where(t < 0.3, 0.0, v),
    }
    passed(learner(early), "GD059")


def test_a_constant_mean_of_varying_rewards_is_alive() -> None:
    passed(learner({"reward": 0.5}), "GD059")
    assert "mean reward varies from" in passed(learner({"reward_std": None}), "GD059")
    missing(learner({"reward": 0.5, "reward_std": 0.0}, steps=4), "GD059")


def test_without_deviations_one_mean_for_all_is_enough() -> None:
    finding = finding_in(learner({"reward": 0.0, "reward_std": None}), "GD059")
    assert finding.headline == "The mean reward is 0 at every step"
    assert finding.cause.startswith(finding.headline)
    assert finding.ruins
    extremes = {"critic/score/mean": 0.5, "critic/score/max": 1.0, "critic/score/min": 0.0}
    verl = {"reward": None, "reward_std": None, **extremes}
    assert "differ by 1 on average" in passed(learner(verl), "GD059")
    finding = finding_in(learner({**verl, "critic/score/min": 1.0}), "GD059")
    assert finding.cause.startswith("Every completion has the reward 0.5 at every step")


def test_steps_that_differ_are_not_counted_as_flat() -> None:
    odd = np.isin(np.arange(80), (3, 17, 40, 70))
    mostly = {"reward": np.where(odd, 0.3, 0.0), "reward_std": np.where(odd, 0.2, 0.0)}
    finding = finding_in(learner(mostly), "GD059")
    assert finding.headline == "The reward is 0 for every completion at 76 of 80 steps"
    assert value(finding, "flat steps") == 95


def ending(first: float, last: float, flat: int = 40) -> TraceBuilder:
    """Eighty steps that end with so many flat ones."""
    flat_steps = np.arange(80) >= 80 - flat
    return learner(
        {"reward": np.where(flat_steps, last, first), "reward_std": np.where(flat_steps, 0.0, 0.3)}
    )


@pytest.mark.parametrize(
    ("first", "last", "headline", "fix"),
    [
        (0.0, 1.1e-6, "The task is solved at step 41", "take the checkpoint of about step 41"),
        (0.0, 1e-6, "The reward is 1e-06 for every completion from step 41 on", "print what"),
        (0.5, 0.5, "The reward is 0.5 for every completion from step 41 on", "print what"),
        (1e-6, 0.0, "The reward is 0 for every completion from step 41 on", "print what"),
        (1.1e-6, 0.0, "The policy is lost: the reward is 0 for every", "a learning rate of"),
    ],
)
def test_a_reward_has_risen_or_fallen_by_more_than_a_millionth(
    first: float, last: float, headline: str, fix: str
) -> None:
    finding = finding_in(ending(first, last), "GD059")
    assert finding.headline.startswith(headline)
    assert finding.fixes[0].spelling.startswith(fix)
    assert finding.severity == ("medium" if "solved" in headline else "high")


@pytest.mark.parametrize(("flat", "enough"), [(16, True), (15, False)])
def test_a_fifth_of_the_run_has_to_be_flat(flat: int, enough: bool) -> None:
    if enough:
        assert value(finding_in(ending(0.2, 1.0, flat), "GD059"), "flat steps") == 20
    else:
        assert "flat in 19% of the steps" in passed(ending(0.2, 1.0, flat), "GD059")
