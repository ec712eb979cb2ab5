"""Sends and receives, whose ends a recorder numbers within their group."""

from __future__ import annotations

import pytest

from grpo_doctor.hang import dumps, matching
from tests.dumps.formats import dumps as dumps_of
from tests.dumps.simulator import Call, Halt, Job, Program, job

GROUPS = {"0": range(6), "1": (2, 3, 5)}


def stage_left_out() -> Job:
    """Rank 2 sends to 3, the second of a group that it has only used with 5, its third, so far."""
    world = [Call("all_reduce")] * 5
    programs: dict[int, Program] = {rank: [*world, Halt()] for rank in range(6)}
    programs[2] = [*world, Call("send", "1", peer=5), Call("send", "1", peer=3)]
    programs[5] = [*world, Call("recv", "1", peer=2), Halt()]
    return job(GROUPS, programs).run()


@pytest.mark.parametrize("version", ["1.4", "2.4", "2.10"])
def test_the_other_end_is_a_rank_of_the_job(version: str) -> None:
    (pair,) = matching.match(dumps.read(dumps_of(stage_left_out(), version)), 6).pairs
    assert (pair.source, pair.target, pair.waiter) == (2, 3, 2)


def test_without_the_members_of_the_group_nobody_is_taken_for_the_other_end() -> None:
    """That of the three only two have used it, so that its second would be rank 5, is no list."""
    found = matching.match(dumps.read(dumps_of(stage_left_out(), "2.2 list")), 6)
    assert found.pairs == ()
    assert 5 not in {blame.rank for blame in found.blame}
