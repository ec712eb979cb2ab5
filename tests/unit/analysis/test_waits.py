from __future__ import annotations

import dataclasses

import pytest

from grpo_doctor.analysis import Analysis, analyse
from grpo_doctor.analysis.rows import CODES
from grpo_doctor.trace.model import Clock, Kind, Trace
from tests.build import TraceBuilder


def arrivals(*starts: float, end_s: float = 10.0, phase: str = "train") -> TraceBuilder:
    """One step of 12 s in which rank i enters one collective at `starts[i]`."""
    build = TraceBuilder(ranks=len(starts))
    for rank, start_s in enumerate(starts):
        build.step(rank, 0, 0.0, {phase: 12.0})
        build.collective(rank, 1, start_s, end_s)
    return build


def waited(analysis: Analysis, rank: int, phase: str = "train") -> float:
    return float(analysis.waited[0, rank, CODES[phase]])


def test_waiting_ends_when_the_last_rank_comes_and_the_rest_is_work() -> None:
    analysis = analyse(arrivals(2.0, 5.0, 8.0).build())
    assert [waited(analysis, rank) for rank in range(3)] == pytest.approx([6, 3, 0])
    assert analysis.seconds[0, 0, CODES["train"]] == pytest.approx(12)


def test_blame_is_what_would_vanish_without_the_last_rank() -> None:
    # With rank 2 as early as rank 1, the others would still wait for rank 1: 3 + 3 s vanish.
    blame = analyse(arrivals(2.0, 5.0, 8.0).build()).blame
    assert blame.waited_s == pytest.approx(9)
    assert blame.explained_s.tolist() == pytest.approx([0, 0, 6])


def test_an_early_leaver_waited_but_not_for_the_last() -> None:
    build = arrivals(2.0, 8.0)
    build.collective(0, 2, 10.5, 11.0).collective(1, 2, 11.5, 11.6)  # left before 1 came
    blame = analyse(build.build()).blame
    assert blame.waited_s == pytest.approx(6.5)
    assert blame.explained_s.tolist() == pytest.approx([0, 6])


def test_an_asynchronous_collective_waits_in_its_wait() -> None:
    build = TraceBuilder(ranks=2)
    for rank, launch_s in enumerate((2.0, 6.0)):
        build.step(rank, 0, 0.0, {"train": 12.0})
        build.collective(rank, 1, launch_s, launch_s + 0.001)
        build.row(
            Kind.COLLECTIVE_WAIT, rank, "wait", 4.0, 7.0, depth=2, value=1.0,
            args={"group": "world"},
        )  # fmt: skip
    analysis = analyse(build.build())
    assert waited(analysis, 0) == pytest.approx(2)
    assert not len(analysis.waits.barriers_ns)


def test_groups_and_sequence_numbers_are_kept_apart() -> None:
    build = TraceBuilder(ranks=2)
    for rank in (0, 1):
        build.step(rank, 0, 0.0, {"train": 12.0})
    build.collective(0, 1, 1.0, 2.0, group="a").collective(1, 1, 5.0, 6.0, group="b")
    build.collective(0, 2, 7.0, 8.0, group="a").collective(1, 3, 9.0, 9.5, group="a")
    assert analyse(build.build()).waits.collectives == 0


def with_clock_error(trace: Trace, error_ns: int | None) -> Trace:
    first, *others = trace.processes
    return dataclasses.replace(
        trace,
        processes=(dataclasses.replace(first, clock=Clock(0, error_ns)), *others),
    )


@pytest.mark.parametrize("error_ns", [7_000_000_000, None])
def test_a_wait_within_the_clocks_error_is_not_claimed(error_ns: int | None) -> None:
    analysis = analyse(with_clock_error(arrivals(2.0, 8.0).build(), error_ns))
    assert waited(analysis, 0) == 0
    assert analysis.waits.claims.withheld == 1


def test_waits_outside_any_phase_are_unattributed() -> None:
    build = TraceBuilder(ranks=2)
    for rank, start_s in enumerate((2.0, 8.0)):
        build.step(rank, 0, 0.0, {"rollout": 1.0}, end_s=12.0)
        build.collective(rank, 1, start_s, 10.0)
    analysis = analyse(build.build())
    assert analysis.waited[0, 0, -1] == pytest.approx(6)
    assert analysis.waited[0, 0].sum() == pytest.approx(6)
