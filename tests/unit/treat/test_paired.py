"""The interval of paired trials: by hand, and how often it keeps what is noise."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_doctor.treat.decision import ORDER, judge
from grpo_doctor.treat.paired import MOST_PAIRS, interval, ratio
from grpo_doctor_reports.schema.treat import TrialEntry

RUNS = 2000


def trial(first: int, seconds: list[float], tokens: list[float] | None = None) -> TrialEntry:
    numbers = list(range(first, first + len(seconds)))
    return TrialEntry(steps=numbers, seconds=list(seconds), tokens=list(tokens or []))


def test_an_interval_by_hand() -> None:
    # Mean -0.2, standard deviation 0.1414, t of one degree of freedom 12.706.
    found = interval([-0.1, -0.3])
    assert found.mid == pytest.approx(100 * (exp(-0.2) - 1))
    assert found.high == pytest.approx(100 * (exp(-0.2 + 12.706 * 0.1) - 1))
    assert found.low == pytest.approx(100 * (exp(-0.2 - 12.706 * 0.1) - 1))


@given(
    st.lists(st.floats(-1, 1), min_size=4, max_size=4),
    st.floats(-1, 1),
)
def test_the_interval_moves_with_the_ratios(ratios: list[float], shift: float) -> None:
    # Half the time in each run is half the change, whatever the spread.
    before, after = interval(ratios), interval([value + shift for value in ratios])
    assert before.low <= before.mid <= before.high
    for end in ("low", "mid", "high"):
        was, now = (log(1 + getattr(found, end) / 100) for found in (before, after))
        assert now == pytest.approx(was + shift, abs=1e-6)


def kept(noise: float, effect: float, drift: float, seed: int) -> bool:
    """Whether a change with this effect is kept, of runs in the order of trials.

    Args:
        noise: standard deviation of a run's logarithm.
        effect: logarithm of what the change does.
        drift: what the machine becomes slower by from run to run.
        seed: of the noise.
    """
    dice = np.random.default_rng(seed)
    sides: dict[str, list[float]] = {"before": [], "after": []}
    for run in range(2 * MOST_PAIRS):
        side = ORDER[run % len(ORDER)]
        level = effect if side == "after" else 0.0
        sides[side].append(level + drift * run + dice.normal(0, noise))
        pairs = list(zip(*sides.values(), strict=False))
        if run % 2 and (judged := judge([b - a for a, b in pairs])).state != "more":
            return judged.state == "kept"
    raise AssertionError("no decision")


@pytest.mark.parametrize("noise", [0.002, 0.01, 0.03, 0.1, 0.3])
@pytest.mark.parametrize("drift", [0.0, 0.02])
def test_noise_is_kept_in_at_most_one_of_twenty(noise: float, drift: float) -> None:
    false = sum(kept(noise, 0.0, drift, seed) for seed in range(RUNS))
    assert false / RUNS <= 0.05


@pytest.mark.parametrize("noise", [0.01, 0.03, 0.1])
def test_a_gain_at_the_limit_is_kept_in_at_most_one_of_twenty(noise: float) -> None:
    false = sum(kept(noise, log(0.98), 0.0, seed) for seed in range(RUNS))
    assert false / RUNS <= 0.05


def test_a_large_gain_is_found() -> None:
    found = sum(kept(0.03, log(0.6), 0.01, seed) for seed in range(RUNS))
    assert found / RUNS > 0.95


def test_only_common_steps_after_the_warm_up_count() -> None:
    before = trial(1, [9.0, 2.0, 2.0, 2.0, 50.0])
    after = trial(2, [1.0, 1.0, 7.0])
    assert ratio(before, after, skip=1, steps=2, goal="step-time") == pytest.approx(log(0.5))


def test_seconds_per_token() -> None:
    before, after = trial(1, [4.0, 4.0], [10, 10]), trial(1, [4.0, 4.0], [20, 20])
    assert ratio(before, after, skip=0, steps=9, goal="tokens") == pytest.approx(log(0.5))


@pytest.mark.parametrize(
    ("after", "goal", "says"),
    [
        (trial(9, [1.0]), "step-time", "no step in common"),
        (TrialEntry(), "step-time", "no step in common"),
        (trial(1, [1.0]), "tokens", "not recorded"),
    ],
)
def test_without_a_ratio_it_says_why(after: TrialEntry, goal: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ratio(trial(1, [1.0]), after, skip=0, steps=1, goal=goal)
