"""Intervals that hold what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from grpo_doctor.compare.times import NEEDS_STEPS, change_of_mean, change_of_ratio


def steps(mean: float, count: int, seed: int, *, memory: float = 0.0) -> NDArray[np.float64]:
    """Step times with a spread of a tenth; `memory` ties each step to the one before."""
    dice = np.random.default_rng(seed)
    noise, interval = 0.0, []
    for shock in dice.normal(0, 0.1 * mean, count):
        noise = memory * noise + np.sqrt(1 - memory**2) * shock
        interval.append(mean + noise)
    return np.array(interval)


@pytest.mark.parametrize(("count", "memory"), [(NEEDS_STEPS, 0.0), (6, 0.0), (20, 0.0), (60, 0.5)])
def test_the_interval_holds_the_true_change(count: int, memory: float) -> None:
    """95% are promised; 150 pairs have a standard error of 2%."""
    hits = 0
    for seed in range(150):
        before = steps(1.0, count, 2 * seed, memory=memory)
        after = steps(0.8, count, 2 * seed + 1, memory=memory)
        ones = np.ones(count)
        interval = change_of_ratio((before, ones), (after, ones))
        assert interval is not None
        hits += interval.low <= -20.0 <= interval.high
    assert hits / 150 >= 0.91


def test_runs_of_the_same_length_do_not_differ_more_often_than_promised() -> None:
    wrong = 0
    for seed in range(150):
        interval = change_of_mean(steps(1.0, 12, 2 * seed), steps(1.0, 12, 2 * seed + 1))
        assert interval is not None
        wrong += not interval.low <= 0 <= interval.high
    assert wrong / 150 <= 0.09


def test_steps_that_grow_with_their_tokens_are_no_correlation_of_the_ratio() -> None:
    tokens = np.linspace(1.0, 3.0, 48)
    seconds = tokens * steps(1.0, 48, 5)
    grown = change_of_ratio((seconds, tokens), (seconds, tokens))
    per_step = change_of_ratio((seconds, np.ones(48)), (seconds, np.ones(48)))
    assert grown is not None
    assert per_step is not None
    assert grown.high - grown.low < 0.5 * (per_step.high - per_step.low)


def test_a_ratio_is_as_sure_where_tokens_grow_as_where_they_come_in_any_order() -> None:
    tokens = np.linspace(1.0, 3.0, 48)
    values = steps(1.0, 48, 0)
    mixed = np.random.default_rng(2).permutation(tokens)
    grown, usual = (change_of_ratio((t * values, t), (t * values, t)) for t in (tokens, mixed))
    assert grown is not None
    assert usual is not None
    assert grown.high - grown.low == pytest.approx(usual.high - usual.low, rel=0.2)


def test_a_ratio_is_of_sums() -> None:
    before = np.array([1.0, 3.0, 1.0, 3.0]), np.array([1.0, 1.0, 1.0, 1.0])
    after = np.array([2.0, 6.0, 2.0, 6.0]), np.array([2.0, 2.0, 2.0, 2.0])
    interval = change_of_ratio(before, after)
    assert interval is not None
    assert interval.mid == pytest.approx(0.0)


def test_few_steps_or_nothing_to_divide_by_give_no_interval() -> None:
    few, enough = np.ones(NEEDS_STEPS - 1), np.ones(NEEDS_STEPS)
    assert change_of_mean(few, enough) is None
    assert change_of_mean(enough, enough) is not None
    assert change_of_ratio((enough, np.zeros(NEEDS_STEPS)), (enough, enough)) is None


def test_the_same_steps_give_the_same_interval() -> None:
    before, after = steps(1.0, 30, 1), steps(0.9, 30, 2)
    assert change_of_mean(before, after) == change_of_mean(before, after)
