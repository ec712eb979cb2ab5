"""Whether a process waits for other ranks: in a collective, at the store, in one not done."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.model.matching.model import Group, GroupStatus, Matching, Wait, Why
from grpo_doctor.hang.model.process.proc import index, process_of
from grpo_doctor_probes.evidence import Frame, Role
from tests.evidence import frames
from tests.unit.hang.model.process.procs import PID, subject
from tests.verdicts import UPDATE

WORLD = Group("0", "0", "default_pg", "gloo", (0, 1))
BACKWARD = frames("backward /x/site-packages/torch/autograd/graph.py:820", "step /home/me/t.py:9")


def wait(rank: int, why: Why) -> Wait:
    return Wait(rank, "0", 7, "all_reduce", (0,), why)


@pytest.mark.parametrize(
    ("waits", "missing", "stack", "how", "outstanding"),
    [
        ((wait(1, "missing"),), (), UPDATE, "still", True),
        ((wait(1, "queued"),), (), UPDATE, "busy", True),
        ((wait(1, "joined"),), (), UPDATE, "still", False),
        ((wait(0, "missing"),), (), UPDATE, "still", False),
        ((), (), UPDATE, "still", False),
        # It has missed one itself: it waits only if it stands in torch's own code.
        ((wait(1, "missing"),), (1,), UPDATE, "still", False),
        ((wait(1, "missing"),), (0,), UPDATE, "still", True),
        ((wait(1, "missing"),), (1,), BACKWARD, "still", True),
        ((wait(1, "missing"),), (1,), BACKWARD, "polling", True),
        ((wait(1, "missing"),), (1,), BACKWARD, "busy", False),
    ],
)
@pytest.mark.parametrize(
    ("role", "rank", "is_rank"), [("rank", 1, True), ("helper", 1, False), ("rank", None, False)]
)
def test_who_has_joined_a_collective_that_is_not_done(
    role: Role,
    rank: int | None,
    is_rank: bool,
    waits: tuple[Wait, ...],
    missing: tuple[int, ...],
    stack: tuple[Frame, ...],
    how: str,
    outstanding: bool,
) -> None:
    build, process = subject(stack)
    if how == "busy":
        process.works(stack, moves=False)
    elif how == "polling":
        process.wakes = 6
    member = replace(process.member, role=role, rank=rank)
    status = GroupStatus(WORLD, "missing", missing=missing)
    matching = Matching(waits=waits, statuses=(status,))
    observed = process_of(index(build.build())[PID], member, matching, "", {})
    assert observed.outstanding is (outstanding and is_rank)
