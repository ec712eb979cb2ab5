"""Whom a process waits for in the end, and who of several is meant."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.hang.model import view
from grpo_doctor.hang.model.waiting import waits
from grpo_doctor.hang.model.waiting.wakeups import (
    asks_strangers,
    end_of,
    family,
    has_succeeded,
    most_telling,
    rests,
)
from grpo_doctor_probes.evidence import Blocked, Frame, Role
from tests.evidence import EvidenceBuilder, FakeProcess, frames
from tests.verdicts import REWARD, UPDATE

PYTHON = "/usr/lib/python3.11"
TAKES = (*frames(f"get {PYTHON}/multiprocessing/queues.py:365"), *UPDATE)
IN_POOL = (*frames(f"result {PYTHON}/concurrent/futures/_base.py:451"), *UPDATE)
MANAGES = frames(
    f"Event.wait {PYTHON}/threading.py:629",
    f"Server.serve_forever {PYTHON}/multiprocessing/managers.py:176",
    "use_cache /home/me/train.py:136",
)


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


@pytest.mark.parametrize(
    ("state", "code", "succeeded"),
    [("Z", 0, True), ("Z", 256, False), ("Z", None, False), ("X", 0, False), ("S", None, False)],
)
def test_who_has_ended_in_order(state: str, code: int | None, succeeded: bool) -> None:
    build = EvidenceBuilder()
    child(build, 300, state=state, exit_code=code)
    assert has_succeeded(view.build(build.build()).by_pid[300]) is succeeded


def test_who_is_not_seen_any_more_has_not_ended_in_order() -> None:
    build = EvidenceBuilder()
    child(build, 300)
    evidence = build.build()
    looks = tuple(
        replace(look, processes=tuple(process for process in look.processes if process.pid != 300))
        for look in evidence.looks
    )
    assert not has_succeeded(view.build(replace(evidence, looks=looks)).by_pid[300])


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


def test_a_family_is_all_that_was_started_each_once() -> None:
    build = EvidenceBuilder()
    for pid, parent in ((300, None), (301, 300), (302, 301), (303, 300), (304, None)):
        child(build, pid, parent=parent)
    model = view.build(build.build())
    assert sorted(proc.pid for proc in family(model, [model.by_pid[300]])) == [300, 301, 302, 303]
    members = family(model, model.children(101))
    assert sorted(proc.pid for proc in members) == [300, 301, 302, 303, 304]
    assert family(model, []) == []


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


def test_a_wait_for_nobody_or_strangers_ends_nowhere() -> None:
    assert end(reads()) is None
    assert end(reads(4711)) is None


@pytest.mark.parametrize(
    ("how", "pid"),
    [("asleep", 301), ("stopped", 300), ("works", 300), ("rests", 300), ("reads from a rank", 300)],
)
def test_a_chain_goes_on_until_somebody_works_rests_or_may_not_run(how: str, pid: int) -> None:
    build = reads(300)
    process = child(build, 300)
    process.blocks("pipe-read", "y", 102 if how == "reads from a rank" else 301)
    child(build, 301)
    if how == "stopped":
        process.state = "T"
    elif how == "works":
        process.works(REWARD, moves=False)
    elif how == "rests":
        process.stack = TAKES
    assert end(build) == pid


def test_a_chain_that_comes_back_ends_at_its_last_process() -> None:
    build = reads(300)
    child(build, 300).blocks("pipe-read", "y", 301)
    child(build, 301).blocks("pipe-read", "z", 300)
    assert end(build) == 301


# Behind a manager, which serves objects and has no work of its own.


def managed(*, manager_state: str = "S", stack: tuple[Frame, ...] = MANAGES) -> EvidenceBuilder:
    build = reads(300)
    child(build, 300, stack=stack, state=manager_state)
    return build


@pytest.mark.parametrize(
    ("others", "pid"),
    [
        ((), 300),
        (({"pid": 301},), 301),
        (({"pid": 301, "stack": TAKES},), 300),  # it waits for its next task
        (({"pid": 301, "parent": 102},), 300),  # of another rank
        (({"pid": 301, "role": "launcher"},), 300),
        (({"pid": 301, "stack": MANAGES},), 301),
    ],
)
def test_who_waits_for_a_manager_waits_for_whoever_writes_to_it(
    others: tuple[dict[str, Any], ...], pid: int
) -> None:
    build = managed()
    for row in others:
        child(build, row["pid"], **{name: each for name, each in row.items() if name != "pid"})
    assert end(build) == pid


@pytest.mark.parametrize(
    ("state", "stack", "pid"),
    [
        ("T", MANAGES, 300),  # it may not run: that is what is wrong
        ("S", frames(f"serve_forever {PYTHON}/socketserver.py:233", "main t.py:9"), 300),
        ("S", frames(f"accepter {PYTHON}/multiprocessing/managers.py:190", "main t.py:9"), 300),
        ("S", MANAGES, 301),
    ],
)
def test_a_manager_is_one_by_its_code_and_while_it_may_run(
    state: str, stack: tuple[Frame, ...], pid: int
) -> None:
    build = managed(manager_state=state, stack=stack)
    child(build, 301)
    assert end(build) == pid


def test_a_manager_whose_only_writer_waits_for_it_is_the_end() -> None:
    build = managed()
    child(build, 301).blocks("socket-receive", "y", 300)
    assert end(build) == 300
    child(build, 302)
    assert end(build) == 302


def test_of_two_managers_that_are_waited_for_neither_writes() -> None:
    build = reads(300, 302)
    for pid in (300, 302):
        child(build, pid, stack=MANAGES)
    assert end(build) == 300
    child(build, 301)
    assert end(build) == 301


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
