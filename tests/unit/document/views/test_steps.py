"""Every step with its place, kind and slowest rank."""

from __future__ import annotations

from grpo_doctor.analysis import Analysis, analyse
from grpo_doctor.document.views.steps import MAX_STEPS, step_entries
from grpo_doctor.trace.model import Kind
from tests.build import TraceBuilder


def of(build: TraceBuilder) -> Analysis:
    return analyse(build.build())


def test_steps_are_in_the_order_of_time_with_the_rank_that_worked_longest() -> None:
    build = TraceBuilder(ranks=2)
    for number, start_s in ((7, 0.0), (3, 20.0), (5, 10.0)):
        for rank in (0, 1):
            seconds = 6.0 if rank == (number == 3) else 4.0
            build.step(rank, number, start_s, {"train": seconds})
    rows = [(s.number, s.start_s, s.seconds, s.slowest_rank) for s in step_entries(of(build))]
    assert rows == [(7, 0.0, 5.0, 0), (5, 10.0, 5.0, 0), (3, 20.0, 5.0, 1)]


def test_a_step_that_no_rank_ended_has_no_length_and_no_slowest_rank() -> None:
    build = TraceBuilder().row(Kind.STEP, 0, "step", 0, 5, depth=0, value=1, open=True)
    (entry,) = step_entries(of(build))
    assert (entry.number, entry.start_s, entry.end_s) == (1, 0.0, 5.0)
    assert (entry.seconds, entry.kind, entry.slowest_rank) == (None, "open", None)


def test_without_steps_there_is_none() -> None:
    assert step_entries(of(TraceBuilder())) == []
    assert step_entries(of(TraceBuilder().span(0, "train", 0, 1))) == []


def test_as_many_steps_as_are_drawn_are_all_there_and_of_more_the_slowest() -> None:
    for extra in (0, 1):
        build = TraceBuilder()
        for number in range(MAX_STEPS + extra):
            build.step(0, number, 2.0 * number, {"train": 1.9 if number == 500 else 1.0})
        entries = step_entries(of(build))
        assert len(entries) == MAX_STEPS
        assert 500 in {entry.number for entry in entries}
