"""Ranks that the others wait for at the start of a job."""

from __future__ import annotations

from dataclasses import replace

from tests.evidence import FIRST_NS, EvidenceBuilder, frames
from tests.verdicts import expect, verdict

JOINING = frames(
    "init_process_group /x/site-packages/torch/distributed/distributed_c10d.py:90",
    "main /home/me/train.py:5",
)


def started(build: EvidenceBuilder, rank: int, ago_s: float) -> None:
    process = build.rank(rank)
    ticks = int((FIRST_NS / 1e9 - ago_s) * 100)
    process.member = replace(process.member, started_ticks=ticks)


def test_a_rank_that_never_came() -> None:
    build = EvidenceBuilder(recorded=False)
    build.lose(1)
    joining = frames(
        "_store_based_barrier /x/site-packages/torch/distributed/distributed_c10d.py:80",
        "init_process_group /x/site-packages/torch/distributed/distributed_c10d.py:90",
        "main /home/me/train.py:5",
    )
    for rank in (0, 2, 3):
        build.rank(rank).stack, build.rank(rank).still_s = joining, 60.0
    found = expect(build, "rank-missing", 1)
    assert found.verdict.summary.startswith("Rank 1 has not come to the rendezvous")


def test_ranks_that_come_a_moment_later_are_waited_for() -> None:
    build = EvidenceBuilder(recorded=False)
    build.lose(1)
    for rank in (0, 2, 3):
        build.rank(rank).stack, build.rank(rank).still_s = JOINING, 4.0
        started(build, rank, 3.0)
    assert verdict(build).state != "stuck"


def test_ranks_that_were_all_started_long_ago_miss_the_one_that_is_not_there() -> None:
    build = EvidenceBuilder(recorded=False)
    build.lose(1)
    for rank in (0, 2, 3):
        # The store is asked in slices of seconds, so that no thread waits for long.
        build.rank(rank).stack, build.rank(rank).still_s = JOINING, 2.5
        started(build, rank, 30.0)
    expect(build, "rank-missing", 1)


def test_a_rank_before_others_of_its_launcher_was_started_and_has_ended() -> None:
    build = EvidenceBuilder(recorded=False)
    build.lose(0)
    for rank, ago_s in ((1, 9.0), (2, 7.5), (3, 6.0)):
        build.rank(rank).stack, build.rank(rank).still_s = JOINING, 1.0
        started(build, rank, ago_s)
    expect(build, "rank-missing", 0)
