"""Seconds by rank and step, as cells of a chart."""

from __future__ import annotations

from grpo_doctor.analysis import analyse
from grpo_doctor.document.views.steps import MAX_RANKS, heatmap
from tests.build import TraceBuilder


def meeting(*works: float, ranks: int | None = None) -> TraceBuilder:
    """Ranks that train for so long each, wait for the slowest, and all end after 10 s."""
    count = ranks or len(works)
    build = TraceBuilder(ranks=count)
    for number in range(4):
        at = 10.0 * number
        for rank in range(count):
            work = works[rank % len(works)]
            build.span(rank, "train", at, at + 8)
            build.collective(rank, number, at + work, at + 8)
            build.step(rank, number, at, {}, end_s=at + 8)
    return build


def test_cells_are_steps_by_rank_with_what_was_waited() -> None:
    cells = heatmap(analyse(meeting(8.0, 3.0).build()))
    assert (cells.ranks, cells.steps, cells.steps_total) == ([0, 1], [0, 1, 2, 3], 4)
    assert cells.step_seconds == [[8.0] * 4] * 2
    assert cells.phase_seconds == {"train": [[8.0] * 4] * 2}
    assert cells.wait_seconds == [[0.0] * 4, [5.0] * 4]
    assert cells.phase_wait_seconds == {"train": [[0.0] * 4, [5.0] * 4]}
    assert cells.means.own_seconds == [8.0, 3.0]
    assert cells.means.wait_seconds == [0.0, 5.0]


def test_where_nobody_waits_no_phase_of_waiting_is_drawn() -> None:
    build = TraceBuilder()
    for number in range(4):
        build.step(0, number, 10.0 * number, {"train": 5.0, "sync": 0.0})
    cells = heatmap(analyse(build.build()))
    assert (cells.phase_wait_seconds, list(cells.phase_seconds)) == ({}, ["train"])


def test_of_many_ranks_those_with_the_most_work_of_their_own_are_drawn() -> None:
    # Of two neighbours the second one works longer, and all steps are as long.
    cells = heatmap(analyse(meeting(2.0, 8.0, ranks=2 * MAX_RANKS).build()))
    assert cells.ranks == list(range(1, 2 * MAX_RANKS, 2))
    assert cells.means.ranks == list(range(2 * MAX_RANKS))
