"""What the rules about learning share: flat rewards, missing ones, rises and falls."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from grpo_doctor.analysis.learning import METRICS
from grpo_doctor.analysis.learning.curves import Curve
from grpo_doctor.analysis.learning.names import key_of
from grpo_doctor.findings import RunView, learning, rules
from grpo_doctor.findings.engine import ask
from grpo_doctor.findings.rule import Finding, NotApplicable, NotRun, Passed
from grpo_doctor.findings.shared import graded
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import run
from tests.unit.findings.learners import learner


def curve(values: Any) -> Curve:
    values = np.asarray(values, dtype=np.float64)
    return Curve("reward", np.arange(1, len(values) + 1), values)


def view(rewards: list[float], **metrics: list[float]) -> RunView:
    build = TraceBuilder(framework="trl", framework_version="0.25.0")
    for i, reward in enumerate(rewards):
        more = {name.replace("__", "/"): values[i] for name, values in metrics.items()}
        build.metrics(i + 1, reward=reward, **more)
    return RunView.of(build.build())


def flat(rewards: list[float], spreads: list[float] | None = None) -> int | None:
    return learning.flat_from(view(rewards, reward_std=spreads or [0.0] * len(rewards)))


@pytest.mark.parametrize(("points", "enough"), [(1, True), (3, True), (4, False)])
def test_a_metric_is_there_once_enough_steps_said_a_number(points: int, enough: bool) -> None:
    run_view = view([0.1, 0.2, 0.3])
    assert learning.metric("reward", points).present(run_view.analysis) is enough
    assert not learning.metric("reward").present(view([0.1, math.nan, 0.2, 0.3]).analysis)
    assert not learning.metric("kl", points).present(run_view.analysis)


def test_a_metric_that_lacks_is_named_for_each_framework_and_with_its_steps() -> None:
    text = "metric `kl` (slime `train/kl_loss`, openrlhf `kl`, verl `actor/kl_loss`)"
    assert learning.metric("kl").text.startswith(f"{text}: ")
    assert learning.metric("kl", 2).text.startswith(f"{text} at 2 steps or more: ")


@pytest.mark.parametrize("seed", range(12))
def test_no_number_is_said_of_a_metric_that_lost_some_without_a_word(seed: int) -> None:
    chance = np.random.default_rng(seed)
    steps, name = 80, list(METRICS)[seed % len(METRICS)]
    key = key_of(name)
    lost = np.sort(chance.choice(steps, int(chance.integers(1, 30)), replace=False))
    values = np.where(np.isin(np.arange(steps), lost), math.nan, chance.uniform(0.1, 0.9, steps))
    run_view = RunView.of(learner({key: values}).build())
    for rule in rules.ALL:
        answer = ask(rule, run_view)
        if name not in rule.RULE.declared or isinstance(answer, NotApplicable | NotRun):
            continue
        assert isinstance(answer, Passed | Finding), answer
        words = answer.note if isinstance(answer, Passed) else f"{answer.cause} {answer.headline}"
        assert re.search(r"NaN|no reward|is missing|see GD059", words), (rule.RULE.id, words)


def test_a_grade_is_reached_by_what_equals_it() -> None:
    grades: Any = {"high": 0.5, "medium": 0.25}
    assert [graded(value, grades) for value in (0.6, 0.5, 0.3, 0.25, 0.2)] == [
        "high", "high", "medium", "medium", None,
    ]  # fmt: skip


def test_steps_from_an_onset_on_are_named_up_to_a_number() -> None:
    long = curve(np.zeros(learning.MOST_STEPS + 10))
    assert learning.from_step(long, None) == ()
    assert learning.from_step(long, 208) == (208, 209, 210)
    assert len(learning.from_step(long, 1)) == learning.MOST_STEPS


@pytest.mark.parametrize(("apart", "words"), [(1, "5 steps"), (10, "5 logged steps")])
def test_the_end_of_a_curve_says_whether_each_step_was_logged(apart: int, words: str) -> None:
    shown = Curve("kl", np.arange(40) * apart, np.linspace(0, 1, 40))
    assert learning.source(shown).endswith(" logged steps") == (apart > 1)
    gap = Curve("kl", np.array([1, 2, 5, 6]), np.zeros(4))
    assert learning.source(gap) == "kl, 4 steps"
    assert learning.counted_steps(shown) == words


def test_a_reward_is_flat_once_it_lasts_five_steps() -> None:
    assert flat([0.1, 0.2, 0.3, 0.5, 0.5, 0.5, 0.5, 0.5]) == 4
    assert flat([0.1, 0.2, 0.3, 0.4, 0.5, 0.5, 0.5, 0.5]) is None
    assert flat([0.5] * 5) == 1
    assert flat([0.5] * 4) is None


def test_a_reward_that_differs_within_a_step_is_not_flat() -> None:
    assert flat([0.5] * 8, [0.2, 0.2, 0, 0, 0, 0, 0, 0]) == 3
    assert flat([0.5] * 8, [0, 0, 0, 0.2, 0.2, 0.2, 0.2, 0.2]) is None


def test_what_differs_by_a_millionth_is_equal() -> None:
    assert flat([1e-6, 1e-6, 1e-6, 1e-6, 0.0]) == 1
    assert flat([1.1e-6, 1e-6, 1e-6, 1e-6, 1e-6, 0.0]) == 2
    assert flat([0.5] * 5, [1e-6] * 5) == 1
    assert flat([0.5] * 5, [1.1e-6] * 5) is None


def test_large_rewards_are_equal_within_their_rounding() -> None:
    assert flat([1e6, 1e6 + 0.5, 1e6, 1e6 - 0.5, 1e6, 1e6]) == 1
    assert flat([1e6 + 9, 1e6 + 7, 1e6 + 5, 1e6, 1e6, 1e6, 1e6, 1e6]) == 4


def test_completions_without_a_reward_are_told_by_nan_and_by_the_ratio() -> None:
    shares = learning.missing_share(view([0.5, math.nan, 0.5]))
    assert shares.values.tolist() == [0.0, 1.0, 0.0]
    assert len(learning.missing_share(RunView.of(run().build()))) == 0


@pytest.mark.parametrize(("last", "rises"), [(1.0, True), (0.0, False), (-1.0, False)])
def test_a_reward_rises_where_its_last_third_is_above_its_first(last: float, rises: bool) -> None:
    rng = np.random.default_rng(1)
    rewards = np.linspace(0, last, 60) + rng.normal(0, 0.05, 60)
    assert learning.reward_rises(view(rewards.tolist())) is rises


def test_a_rise_before_a_step_is_no_rise_after_it() -> None:
    rng = np.random.default_rng(2)
    rewards = np.r_[np.linspace(0, 1, 40), np.ones(40)] + rng.normal(0, 0.05, 80)
    assert learning.reward_rises(view(rewards.tolist()))
    assert not learning.reward_rises(view(rewards.tolist()), until=41)
    assert learning.reward_rises(view(rewards.tolist()), until=5)


def test_ten_steps_are_the_fewest_that_can_rise() -> None:
    assert learning.reward_rises(view([0.1 * i for i in range(10)]))
    assert not learning.reward_rises(view([0.1 * i for i in range(9)]))
    falls_then_rises = [2.0, 1.5, 1.0, *(0.1 * i for i in range(10))]
    assert learning.reward_rises(view(falls_then_rises), until=4)
    assert not learning.reward_rises(view(falls_then_rises), until=5)


def test_a_dip_between_equal_ends_is_no_rise() -> None:
    assert not learning.reward_rises(view([0.5] * 5 + [0.1] * 5 + [0.5] * 5))
    assert learning.reward_rises(view([0.5] * 5 + [0.1] * 5 + [0.6] * 5))


def test_a_fall_is_from_the_highest_window_to_the_last() -> None:
    values = np.r_[np.full(40, 0.2), np.full(40, 0.8), np.full(40, 0.3)]
    fall = learning.fall_of(curve(values))
    assert (fall.start, fall.peak, fall.end) == pytest.approx((0.2, 0.8, 0.3))
    assert 45 <= fall.peak_step <= 75
    assert fall.error < 0.2


def test_noise_makes_a_fall_less_sure() -> None:
    rng = np.random.default_rng(3)
    errors = [learning.fall_of(curve(rng.normal(0, noise, 100))).error for noise in (0.1, 1.0)]
    # A mean of ten values with a deviation of 1 errs by 0.32, a difference of two by 0.45.
    assert errors[1] == pytest.approx(0.45, abs=0.2)
    assert errors[0] < errors[1] / 5


def test_ten_steps_err_alike_in_either_direction() -> None:
    values = np.r_[np.zeros(9), 10.0]
    # The one window is the peak's and the end's: a mean of 1, known to within 1.
    assert learning.fall_of(curve(values)).error == pytest.approx(math.sqrt(2))
    assert learning.fall_of(curve(values[::-1])).error == pytest.approx(math.sqrt(2))


def test_few_steps_are_one_window() -> None:
    fall = learning.fall_of(curve([1.0, 2.0, 3.0]))
    assert fall.start == fall.end == 2.0
    assert fall.peak_step == 2


def test_the_share_that_makes_and_uses_rollouts() -> None:
    assert learning.share(RunView.of(run().build())) == pytest.approx(9.2 / 9.85, abs=0.01)
    assert learning.share(RunView.of(TraceBuilder().build())) == 0.0
