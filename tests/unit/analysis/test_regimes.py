from __future__ import annotations

import numpy as np
import pytest

from grpo_doctor.analysis import Analysis, analyse
from grpo_doctor.analysis.regimes import CHECKPOINT, EVAL, OPEN, STEADY, WARMUP, steady_state
from grpo_doctor.trace.model import Kind
from tests.build import TraceBuilder

NOISE = np.random.default_rng(7).normal(1, 0.04, 200)


def run(lengths: list[float], **sometimes: tuple[int, ...]) -> Analysis:
    """One rank's steps; `checkpoint=(3,)` makes step 3 hold one of 2 s."""
    build, now = TraceBuilder(), 0.0
    for number, length in enumerate(lengths):
        extra = {phase: 2.0 for phase, numbers in sometimes.items() if number in numbers}
        build.step(0, number, now, {"train": length, **extra})
        now += length + sum(extra.values())
    build.row(Kind.STEP, 0, "step", now, now + 1, depth=0, value=len(lengths), open=True)
    return analyse(build.build())


def test_steps_with_a_checkpoint_or_an_evaluation_are_set_apart() -> None:
    analysis = run([30.0, *[10.0] * 11], checkpoint=(4, 9), eval=(6,))
    regimes = analysis.regimes
    assert regimes.rows(CHECKPOINT).tolist() == [4, 9]
    assert regimes.rows(EVAL).tolist() == [6]
    assert regimes.rows(WARMUP).tolist() == [0]
    assert regimes.rows(OPEN).tolist() == [12]
    assert len(regimes.rows(STEADY)) == 8
    assert regimes.steady_s == pytest.approx(10)
    # They stay in the means, so that a finding about them sees what they cost.
    assert analysis.step_s == pytest.approx(10 + 3 * 2 / 11)


def test_a_step_time_that_settles_says_where() -> None:
    lengths = [14.0 * n for n in NOISE[:12]] + [10.0 * n for n in NOISE[12:60]]
    regimes = run(lengths).regimes
    assert regimes.steady_from == 12
    assert regimes.reason.startswith("before step 12 steps take 13.9 s, from there on 9.9")


@pytest.mark.parametrize("seed", range(8))
def test_noise_alone_is_neither_change_nor_trend(seed: int) -> None:
    lengths = np.random.default_rng(seed).normal(10, 1.5, 80)
    assert steady_state(lengths) == (0, "no level change and no trend among the steps")


def test_few_steps_show_nothing() -> None:
    assert steady_state(np.array([1.0]))[0] is None
    assert steady_state(np.array([1.0, 2.0, 1.0]))[1].endswith("too few to detect a change")


def test_a_run_that_generates_every_third_step_is_steady() -> None:
    assert steady_state(np.array([30.0, 5.0, 5.0] * 20) * NOISE[:60])[0] == 0


@pytest.mark.parametrize(("high", "low", "begins"), [(3, 7, 3), (4, 4, 4), (6, 4, 5), (1, 9, 0)])
def test_a_level_has_at_least_three_steps_and_ends_in_the_first_half(
    high: int, low: int, begins: int
) -> None:
    assert steady_state(np.array([20.0] * high + [10.0] * low))[0] == begins


def test_a_level_is_a_tenth_above_the_next() -> None:
    assert steady_state(np.array([11.1] * 5 + [10.0] * 10))[0] == 5
    assert steady_state(np.array([10.9] * 5 + [10.0] * 10))[0] == 0


def test_eight_steps_are_the_fewest_that_change() -> None:
    assert steady_state(np.array([20.0] * 3 + [10.0] * 5))[0] == 3
    assert steady_state(np.array([20.0] * 3 + [10.0] * 4))[0] == 0
    assert steady_state(np.array([20.0, 10.0]))[0] == 0
    assert steady_state(np.array([20.0]))[0] is None


def test_a_slow_drift_is_none_and_a_fast_one_is() -> None:
    t = np.arange(100, dtype=np.float64)
    assert steady_state(10 + 0.005 * t)[0] == 0
    begins, reason = steady_state(10 + 0.02 * t)
    assert begins is None
    assert reason == "steps become longer all along, by 18% over 100 steps"
    assert "shorter all along, by 18%" in steady_state((10 + 0.02 * t)[::-1])[1]


def test_the_reason_counts_steps_in_words() -> None:
    assert steady_state(np.empty(0))[1] == "only 0 steps of the usual kind"
    assert steady_state(np.array([1.0]))[1] == "only 1 step of the usual kind"
    assert steady_state(np.array([1.0, 1.0]))[1].startswith(
        "only 2 steps of the usual kind: too few "
    )


@pytest.mark.parametrize(("lengths", "reason"), [
    ([10.0] * 10, "no level change"),
    ([30.0, *[10.0] * 9], "after 1 warm-up step no level change"),
    ([30.0, 25.0, *[10.0] * 9], "after 2 warm-up steps no level change"),
    ([60.0, *[20.0] * 4, *[10.0] * 8], "before step 5 steps take 20 s, from there on 10 s"),
])  # fmt: skip
def test_warm_up_steps_are_said_where_no_level_follows(lengths: list[float], reason: str) -> None:
    assert run(lengths).regimes.reason.startswith(reason)


def test_an_evaluation_in_half_of_the_steps_is_the_usual_step() -> None:
    assert run([10.0] * 6, eval=(0, 2, 4)).regimes.rows(EVAL).tolist() == []
    assert run([10.0] * 6, eval=(0, 2)).regimes.rows(EVAL).tolist() == [0, 2]


def test_levels_that_touch_are_no_two_levels() -> None:
    first, later = [20.0, 12.0, 12.0, 20.0], [*[10.0] * 5, 12.0, 12.0, *[10.0] * 4]
    assert steady_state(np.array(first + later))[0] == 0
    assert steady_state(np.array([20.0, 12.1, 12.1, 20.0, *later]))[0] == 4
    assert steady_state(np.array([11.0] * 4 + [10.0] * 6))[0] == 0  # a tenth and no more
