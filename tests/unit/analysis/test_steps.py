from __future__ import annotations

import numpy as np
import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.analysis.regimes import OPEN
from grpo_doctor.analysis.steps import CUT_PREFIX, ERROR_PREFIX, warmup_steps
from grpo_doctor.trace.model import Exit, Kind
from tests.build import TraceBuilder


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([9, 1, 1, 1, 1], 1),
        ([9, 5, 1, 1, 1], 2),
        ([1.4, 1, 1, 1], 0),
        ([1.5, 1, 1, 1], 0),
        ([1.51, 1, 1, 1], 1),
        ([9, 1, 1, 1], 1),
        ([9, 1, 1], 0),  # too few steps to know what is usual
        ([9, 9, 9, 1], 0),
        ([9, 1, 1, 1, 9, 1, 1, 1, 9, 1, 1, 1], 0),  # generates every fourth step
        ([1, 1, 1, 1, 9], 0),
    ],
)
def test_warm_up_is_leading_long_steps(seconds: list[float], expected: int) -> None:
    assert warmup_steps(np.array(seconds, dtype=np.float64)) == expected


def two_ranks(steps: int, missing: tuple[int, int] | None = None) -> TraceBuilder:
    build = TraceBuilder(ranks=2)
    for rank in (0, 1):
        for number in range(steps):
            if (rank, number) != missing:
                build.step(rank, number, float(number), {"rollout": 0.6, "train": 0.3})
    return build


def test_a_step_that_one_rank_lacks_is_counted_but_not_used() -> None:
    steps = analyse(two_ranks(5, missing=(1, 4)).build()).steps
    assert steps.numbers.tolist() == [0, 1, 2, 3, 4]
    assert steps.used.tolist() == [0, 1, 2, 3]
    assert np.isnan(steps.seconds[4, 1])
    assert steps.seconds[4, 0] == pytest.approx(0.9)


def test_a_step_that_never_ended_is_not_used() -> None:
    build = two_ranks(3)
    for rank in (0, 1):
        build.row(Kind.STEP, rank, "step", 3.0, 9.0, depth=0, value=3.0, open=True)
    steps = analyse(build.build()).steps
    assert steps.numbers.tolist() == [0, 1, 2, 3]
    assert steps.used.tolist() == [0, 1, 2]


@pytest.mark.parametrize("state", ["interrupted", "failed", "finished"])
def test_a_step_that_an_exception_left_is_in_no_mean(state: str) -> None:
    build = two_ranks(5)
    build.exit = Exit(state)
    build.row(Kind.INSTANT, 1, CUT_PREFIX + "KeyboardInterrupt", 4.8, 4.8)
    analysis = analyse(build.build())
    assert analysis.steps.used.tolist() == [0, 1, 2, 3]
    assert len(analysis.used_seconds) == len(analysis.step_seconds) == 4
    assert analysis.regimes.rows(OPEN).tolist() == [4]


def test_a_rank_without_steps_does_not_spoil_the_others() -> None:
    build = TraceBuilder(ranks=2)
    for number in range(3):
        build.step(0, number, float(number), {"train": 1.0})
    build.span(1, "rollout", 0, 3)
    analysis = analyse(build.build())
    assert analysis.steps.used.tolist() == [0, 1, 2]
    assert analysis.used_seconds.shape[:2] == (3, 1)


def test_the_first_long_step_is_left_out_of_the_mean() -> None:
    build = TraceBuilder()
    build.step(0, 0, 0.0, {"train": 20.0})
    for number in range(1, 6):
        build.step(0, number, 20.0 + number, {"train": 1.0})
    analysis = analyse(build.build())
    assert analysis.steps.warmup == 1
    assert analysis.step_s == pytest.approx(1.0)


def test_steps_that_overlap_on_one_rank_share_no_time() -> None:
    build = TraceBuilder()
    build.row(Kind.STEP, 0, "step", 0, 5, depth=0, value=0)
    build.row(Kind.STEP, 0, "step", 4, 8, depth=0, value=1)
    windows, _ = analyse(build.build()).steps.windows(0)
    assert windows.total_ns == 8_000_000_000


def closed_steps(state: str, error_at: dict[int, float]) -> list[list[bool]]:
    """Which steps ended, of two ranks with three steps each, by how the run ended."""
    build = TraceBuilder(ranks=2, exit=Exit(state=state, code=1))
    for rank in (0, 1):
        for number in range(3):
            build.step(rank, number, float(number), {"train": 1.0})
        if rank in error_at:
            moment_s = error_at[rank]
            build.row(Kind.INSTANT, rank, f"{ERROR_PREFIX}train", moment_s, moment_s)
            build.span(rank, f"{ERROR_PREFIX}other", 0.0, 3.0)  # a span of that name is no error
    closed: list[list[bool]] = analyse(build.build()).steps.closed.T.tolist()
    return closed


WHOLE, CUT = [True] * 3, [True, True, False]


@pytest.mark.parametrize(
    ("state", "error_at", "expected"),
    [
        ("finished", {}, [WHOLE, WHOLE]),
        ("finished", {1: 2.5}, [WHOLE, WHOLE]),
        ("hung", {}, [CUT, CUT]),
        ("failed", {}, [WHOLE, WHOLE]),
        ("failed", {1: 2.5}, [WHOLE, CUT]),
        ("failed", {1: 2.0}, [WHOLE, CUT]),
        ("failed", {1: 3.0}, [WHOLE, CUT]),
        ("failed", {0: 1.9}, [WHOLE, WHOLE]),  # a step that an error left, and that went on
    ],
)
def test_the_last_step_of_a_rank_that_died_in_it_did_not_end(
    state: str, error_at: dict[int, float], expected: list[list[bool]]
) -> None:
    assert closed_steps(state, error_at) == expected


def test_a_step_that_took_no_time_did_not_end() -> None:
    build = two_ranks(3).row(Kind.STEP, 0, "step", 9.0, 9.0, depth=0, value=3)
    assert analyse(build.build()).steps.closed[3].tolist() == [False, False]


@pytest.mark.parametrize(("number", "steps"), [(2.0**53 - 1, 1), (2.0**53, 0), (float("nan"), 0)])
def test_a_number_that_has_no_units_is_no_steps(number: float, steps: int) -> None:
    build = TraceBuilder().row(Kind.STEP, 0, "step", 0, 5, depth=0, value=number)
    assert len(analyse(build.build()).steps.numbers) == steps
