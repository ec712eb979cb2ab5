"""Whom a process waits for in the end, and who of several is meant."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.hang.model import view
from grpo_doctor.hang.model.waiting import waits
from grpo_doctor.hang.model.waiting.wakeups import asks_strangers, end_of, most_telling, rests
from grpo_doctor_probes.evidence import Blocked, Frame, Role
from tests.evidence import EvidenceBuilder, FakeProcess, frames
from tests.verdicts import REWARD, UPDATE

PYTHON = "/usr/lib/python3.11"
TAKES = (*frames(f"get {PYTHON}/multiprocessing/queues.py:365"), *UPDATE)
IN_POOL = (*frames(f"result {PYTHON}/concurrent/futures/_base.py:451"), *UPDATE)


def child(build: EvidenceBuilder, pid: int, *, role: Role = "helper", **more: Any) -> FakeProcess:
    process = build.child(1, role, pid=pid, parent=more.pop("parent", None))
    process.stack = more.pop("stack", REWARD)
    for name, value in more.items():
        setattr(process, name, value)
    return process


@pytest.mark.parametrize(
    ("stack", "how", "resting"),
    [
        (TAKES, "still", True),
        (TAKES, "polls", True),
        (TAKES, "works", False),
        (TAKES, "stopped", False),
        (IN_POOL, "still", True),
        (REWARD, "still", False),
    ],
)
def test_who_waits_for_its_next_task(stack: tuple[Frame, ...], how: str, resting: bool) -> None:
    build = EvidenceBuilder()
    process = child(build, 300, stack=stack)
    if how == "works":
        process.works(stack, moves=False)
    elif how == "polls":
        process.wakes = 6
    elif how == "stopped":
        process.state = "T"
    assert rests(view.build(build.build()).by_pid[300]) is resting


def test_of_several_who_works_most_is_meant_then_who_may_not_run_then_who_is_in_a_task() -> None:
    build = EvidenceBuilder()
    for pid in (306, 305):
        child(build, pid)
    child(build, 304, stack=TAKES)
    child(build, 307, state="T")
    child(build, 308, stack=IN_POOL, cpu_share=0.2, state="S")
    for pid, share in ((309, 0.4), (310, 0.9)):
        child(build, pid).works(REWARD, share=share, moves=False)
    procs = [proc for proc in view.build(build.build()).procs if proc.pid >= 300]
    order = []
    while procs:
        chosen = most_telling(procs)
        assert chosen is not None
        order.append(chosen.pid)
        procs.remove(chosen)
    assert order == [310, 309, 308, 307, 305, 306, 304]
    assert most_telling([]) is None


# The end of a chain of waits.


def end(build: EvidenceBuilder) -> int | None:
    """The process that rank 1 waits for in the end."""
    model = view.build(build.build())
    chosen = end_of(model, waits.build(model), model.by_rank[1])
    return chosen.pid if chosen is not None else None


def reads(*peers: int, kind: Any = "pipe-read") -> EvidenceBuilder:
    build = EvidenceBuilder()
    build.elsewhere(1, UPDATE).blocks(kind, "x", *peers, peers_known=True)
    return build


@pytest.mark.parametrize(
    ("kind", "role", "pid"),
    [
        ("pipe-read", "helper", 300),
        ("socket-receive", "helper", 300),
        ("child", "helper", 300),
        ("file-lock", "helper", 300),
        ("file", "helper", None),  # no wait that leads through
        ("pipe-read", "launcher", None),
        ("pipe-read", "rank", None),
    ],
)
def test_waits_lead_through_pipes_sockets_children_and_locks_to_helpers(
    kind: str, role: Role, pid: int | None
) -> None:
    build = reads(300, kind=kind)
    process = child(build, 300, role=role)
    if role == "rank":
        process.member = replace(process.member, rank=None)
    assert end(build) == pid


# Behind a manager, which serves objects and has no work of its own.


@pytest.mark.parametrize(
    ("rows", "strangers"),
    [
        ((), False),
        ((("socket-receive", (300,)),), False),
        ((("socket-receive", ()),), True),
        ((("socket-receive", (300, 4711)),), True),
        ((("socket-connect", (4711,)),), True),
        ((("socket-send", (4711,)),), True),
        ((("pipe-read", (4711,)),), False),
        ((("socket-accept", ()),), False),
        ((("socket-receive", (300,)), ("socket-send", ())), True),
    ],
)
def test_whether_somebody_who_is_not_seen_is_asked(
    rows: tuple[tuple[Any, tuple[int, ...]], ...], strangers: bool
) -> None:
    build = EvidenceBuilder()
    process = child(build, 300)
    process.blocked = [Blocked(300, 300, kind, peers=peers) for kind, peers in rows]
    model = view.build(build.build())
    assert asks_strangers(model, model.by_pid[300]) is strangers
