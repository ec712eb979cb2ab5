"""Which thread of a process may end its wait, and what that is blocked on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor_probes.evidence import Blocked, Frame
from tests.evidence import frames
from tests.unit.hang.model.process.procs import (
    IN_POOL,
    LOOP,
    OTHER,
    PID,
    PYTHON,
    QUEUE,
    of,
    proc,
    subject,
    thread,
)
from tests.verdicts import REWARD, UPDATE


@pytest.mark.parametrize(
    ("stack", "beside", "waker_tids"),
    [
        (QUEUE, (*REWARD, *IN_POOL), {PID, OTHER}),
        (LOOP, (*REWARD, *IN_POOL), {PID, OTHER}),
        (QUEUE, REWARD, {PID, OTHER}),  # the only one in user code
        (UPDATE, (*REWARD, *IN_POOL), {PID}),
        (LOOP, REWARD, {PID}),
    ],
)
def test_whose_threads_may_end_its_wait(
    stack: tuple[Frame, ...], beside: tuple[Frame, ...], waker_tids: set[int]
) -> None:
    build, process = subject(stack)
    thread(process, OTHER, beside)
    assert proc(build).waker_tids == waker_tids


def test_of_a_pool_any_thread_at_work_may_end_it() -> None:
    build, process = subject(LOOP)
    for tid in (OTHER, OTHER + 1):
        thread(process, tid, (*REWARD, *IN_POOL))
    thread(process, OTHER + 2, IN_POOL)
    assert proc(build).waker_tids == {PID, OTHER, OTHER + 1}


def row(kind: Any, *peers: int, tid: int = PID, **more: Any) -> Blocked:
    return Blocked(PID, tid, kind, peers=peers, **more)


UNREAD = row("socket-receive", 4711, tid=OTHER, peer_unread_bytes=9)


@pytest.mark.parametrize(
    ("rows", "hold"),
    [
        ((), None),
        ((row("pipe-read"),), row("pipe-read")),
        ((row("pipe-read", tid=OTHER),), None),
        ((row("pipe-read"), row("futex")), row("pipe-read")),
        # One long sleep tries no lock.
        ((row("file-lock"), row("sleep")), row("sleep")),
        # A connection on which something was sent that is not read.
        ((row("futex"), UNREAD), UNREAD),
        ((row("poll"), UNREAD), UNREAD),
        ((UNREAD,), UNREAD),
        ((row("poll", 300), UNREAD), row("poll", 300)),
        ((row("pipe-read"), UNREAD), row("pipe-read")),
        ((row("futex"), UNREAD, replace(UNREAD, fd=5)), row("futex")),  # which of the two?
        ((row("futex"), replace(UNREAD, peers=())), row("futex")),
        ((row("futex"), replace(UNREAD, kind="pipe-read")), row("futex")),
        ((row("futex"), replace(UNREAD, peer_unread_bytes=0)), row("futex")),
        ((row("futex"), replace(UNREAD, kind="socket-send")), replace(UNREAD, kind="socket-send")),
    ],
)
def test_what_it_is_blocked_on(rows: tuple[Blocked, ...], hold: Blocked | None) -> None:
    assert proc(subject()[0], blocked=rows).hold == hold


def test_who_polls_for_a_lock_between_two_sleeps_waits_for_the_lock() -> None:
    build, _ = subject(wakes=6)
    assert proc(build, blocked=(row("file-lock"), row("sleep"))).hold == row("file-lock")


@pytest.mark.parametrize(
    ("stack", "rows", "hold"),
    [
        (LOOP, (row("socket-receive", PID), row("pipe-read")), row("pipe-read")),
        (LOOP, (row("socket-receive", PID),), None),
        (LOOP, (row("socket-receive", PID, 300),), row("socket-receive", PID, 300)),
        (UPDATE, (row("socket-receive", PID),), row("socket-receive", PID)),
    ],
)
def test_the_socket_that_wakes_its_own_event_loop_is_no_wait(
    stack: tuple[Frame, ...], rows: tuple[Blocked, ...], hold: Blocked | None
) -> None:
    assert proc(subject(stack)[0], blocked=rows).hold == hold


def test_the_thread_that_it_waits_for_tells_by_what_that_is_blocked_on() -> None:
    build, process = subject(QUEUE)
    thread(process, OTHER, REWARD)
    of_thread, of_main = row("pipe-read", tid=OTHER), row("futex")
    observed = proc(build, blocked=(of_main, of_thread))
    assert (observed.tid, observed.blocking_place.user, observed.hold) == (
        OTHER,
        REWARD[0],
        of_thread,
    )
    assert observed.blocking_thread is not None
    assert observed.blocking_thread.tid == OTHER
    assert proc(build, blocked=(of_main,)).hold == of_main


@pytest.mark.parametrize(
    ("stack", "blocked", "limit", "in_c"),
    [
        (UPDATE, "futex", 0x7FFE, True),
        (UPDATE, "futex", 0, False),  # a plain lock
        (UPDATE, "pipe-read", 0x7FFE, False),
        (QUEUE, "futex", 0x7FFE, False),
        (frames(f"inner {PYTHON}/json/decoder.py:3", "main /x/t.py:9"), "futex", 0x7FFE, False),
        ((), "futex", 0x7FFE, False),
    ],
)
def test_who_sleeps_in_a_c_call_under_its_own_line(
    stack: tuple[Frame, ...], blocked: Any, limit: int, in_c: bool
) -> None:
    build, process = subject(stack)
    process.blocks(blocked)
    evidence = build.build()
    last = evidence.looks[1]
    rows = tuple(
        replace(process, threads=(replace(process.threads[0], arguments=(1, 393, 0, limit)),))
        if process.pid == PID
        else process
        for process in last.processes
    )
    observed = of(replace(evidence, looks=(evidence.looks[0], replace(last, processes=rows))))
    assert observed.waits_in_c is in_c
