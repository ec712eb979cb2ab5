"""Collectives of a step, the longest kinds first."""

from __future__ import annotations

from grpo_doctor.analysis import analyse
from grpo_doctor.document.views.critical import MAX_ENTRIES, collective_entries
from tests.build import TraceBuilder


def test_a_kind_has_its_skew_its_transfer_and_who_came_last() -> None:
    build = TraceBuilder(ranks=2)
    for number in range(4):
        at = 20.0 * number
        for rank in (0, 1):
            build.step(rank, number, at, {"train": 10.0})
            build.collective(rank, 2 * number, at + 2 + rank, at + 5, name="short")
            build.collective(rank, 2 * number + 1, at + 6 + 2 * rank, at + 9.9, name="long")
    long, short = collective_entries(analyse(build.build()))
    assert (long.name, long.group, long.phase, long.count) == ("long", "world", "train", 1.0)
    assert (long.seconds, long.skew_seconds, long.transfer_seconds) == (2.9, 2.0, 1.9)
    assert long.last_rank == 1
    assert (short.name, short.seconds, short.transfer_seconds) == ("short", 2.5, 2.0)


def test_no_more_kinds_than_a_page_shows() -> None:
    build = TraceBuilder(ranks=2)
    for rank in (0, 1):
        build.step(rank, 0, 0.0, {"train": 100.0})
        for number in range(MAX_ENTRIES + 1):
            build.collective(rank, 1, 5.0 + number, 6.0 + number, group=f"g{number}")
    assert len(collective_entries(analyse(build.build()))) == MAX_ENTRIES
