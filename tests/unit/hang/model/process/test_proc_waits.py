"""Whether a process waits for other ranks: in a collective, at the store, in one not done."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.model.matching.model import Group, GroupStatus, Matching, Wait, Why
from grpo_doctor.hang.model.process.proc import index, process_of
from grpo_doctor_probes.evidence import Blocked, Frame, OpenSpanSeen, Role
from tests.evidence import collective, frames
from tests.unit.hang.model.process.procs import (
    IN_POOL,
    LOOP,
    OTHER,
    PID,
    of,
    proc,
    span,
    subject,
    thread,
)
from tests.verdicts import REWARD, UPDATE


@pytest.mark.parametrize(
    ("stack", "state", "spans", "waits"),
    [
        (collective("barrier"), "S", (), True),
        (collective("recv"), "S", (), True),
        (collective("barrier"), "T", (), False),
        (UPDATE, "S", (), False),
        ((), "S", (span("all_reduce", 1.0, collective=True),), True),
        (UPDATE, "S", (span("all_reduce", 1.0, collective=True),), False),  # its stack tells more
        ((), "S", (span("rollout", 1.0),), False),
        ((), "S", (), False),
    ],
)
def test_who_needs_other_ranks_to_get_on(
    stack: tuple[Frame, ...], state: str, spans: tuple[OpenSpanSeen, ...], waits: bool
) -> None:
    build, _ = subject(stack, state=state)
    assert proc(build, spans=spans).waits is waits


@pytest.mark.parametrize(
    ("beside", "works", "waits"),
    [
        (collective("barrier"), False, True),
        (collective("barrier"), True, False),  # its main thread gets on
        (REWARD, False, False),
    ],
)
def test_who_waits_for_a_thread_of_its_own_needs_whom_that_needs(
    beside: tuple[Frame, ...], works: bool, waits: bool
) -> None:
    build, process = subject(LOOP)
    thread(process, OTHER, (*beside, *IN_POOL))
    if works:
        process.works(LOOP)
    assert proc(build).waits is waits


STORE = "10.0.0.1:5 -> 10.0.0.1:29500"


@pytest.mark.parametrize(
    ("address", "row", "at_store"),
    [
        ("node0:29500", Blocked(PID, PID, "socket-receive", target=STORE), True),
        ("node0:29500", Blocked(PID, PID, "poll", target=STORE), True),
        ("node0:29500", Blocked(PID, PID, "socket-send", target=STORE), False),
        ("node0:29501", Blocked(PID, PID, "socket-receive", target=STORE), False),
        ("node0:9500", Blocked(PID, PID, "socket-receive", target=STORE), False),
        ("", Blocked(PID, PID, "socket-receive", target="10.0.0.1:"), False),
        ("node0:29500", Blocked(PID, OTHER, "socket-receive", target=STORE), False),
    ],
)
def test_who_asks_the_store_of_the_rendezvous(address: str, row: Blocked, at_store: bool) -> None:
    evidence = subject()[0].build()
    observed = of(replace(evidence, job=replace(evidence.job, address=address), blocked=(row,)))
    assert (observed.at_store, observed.waits) == (at_store, at_store)


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
