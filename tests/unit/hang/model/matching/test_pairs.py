"""Sends and receives, whose ends a recorder numbers within their group."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grpo_doctor.hang import dumps
from grpo_doctor.hang.dumps import Entry
from grpo_doctor.hang.model.matching.match import match
from grpo_doctor.hang.model.matching.queues import transfers_of
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


def test_without_the_members_of_the_group_nobody_is_taken_for_the_other_end() -> None:
    """That of the three only two have used it, so that its second would be rank 5, is no list."""
    matched = match(dumps.read(dumps_of(stage_left_out(), "2.2 list")), 6)
    assert "p2p" not in {wait.why for wait in matched.waits}
    assert 5 not in {blame.rank for blame in matched.blame}


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_a_send_left_out_is_told_however_many_wait_beside_its_partner(form: str) -> None:
    """Two pipeline stages of three: rank 0 goes on to the world's all_reduce without its send, and
    two ranks of the next stage wait for the partner that waits for it.
    """
    stages = {"0": range(6), "1": (0, 3), "2": (1, 4), "3": (2, 5), "4": range(3), "5": (3, 4, 5)}

    def step(rank: int) -> list[Call]:
        op = "send" if rank < 3 else "recv"
        peer = (rank + 3) % 6
        transfer = Call(op, str(1 + rank % 3), line=11, peer=peer)
        return [transfer, Call("reduce_scatter", "45"[rank // 3], line=12), Call("all_reduce")]

    rounds = {rank: [call for _ in range(6) for call in step(rank)] for rank in range(6)}
    rounds[0] += step(0)[1:]
    for rank in range(1, 6):
        rounds[rank] += step(rank)
    files = dumps_of(job(stages, rounds).run(), form=form)
    (blame,) = match(dumps.read(files)).blame
    assert (blame.rank, blame.reason) == (0, "not-sent")
    assert "as others at its place did" in blame.text


@pytest.mark.parametrize(
    ("members", "source", "pairs"),
    [((5, 2, 3), 1, [(3, 2)]), ((5, 2, 3), 2, [(3, 5)]), ((5, 2), 2, [])],
    ids=["sorted by torch", "as listed", "of too short a list"],
)
def test_a_rank_s_own_transfers_show_how_its_group_is_ordered(
    members: tuple[int, ...], source: int, pairs: list[tuple[int, int]]
) -> None:
    """Rank 3 sends to the first of the group."""
    sent = Entry(1, "0", "0", "", "nccl", "send", "send", 1, source=source, target=0)
    gathered: Any = SimpleNamespace(
        group=SimpleNamespace(members=members), tracks={3: SimpleNamespace(p2p=(sent,))}
    )
    assert list(transfers_of(gathered, "send")) == pairs
