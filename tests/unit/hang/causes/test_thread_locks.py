"""Locks of threads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.hang.causes.locks import thread_locks
from grpo_doctor_probes.evidence import Frame, PythonThread, Thread
from tests.evidence import BETWEEN_S, EvidenceBuilder, FakeProcess, collective, frames
from tests.unit.hang.causes.proposed import only, proposed
from tests.verdicts import REWARD, UPDATE, expect, verdict


def _thread(
    tid: int, stack: tuple[Frame, ...], name: str = "worker"
) -> tuple[PythonThread, Thread]:
    task = Thread(tid, name, "S", "futex_do_wait", last_ran_ns=1)
    return PythonThread(tid, name, stack), task


JOIN = frames(
    "Thread.join /usr/lib/python3.11/threading.py:1119", "close /home/me/train.py:50", "main t.py:9"
)
WAIT = frames(
    "Condition.wait /usr/lib/python3.11/threading.py:327", "next_one /home/me/train.py:60"
)


@pytest.mark.parametrize("waits", [JOIN, WAIT])
def test_a_wait_for_a_thread_that_wants_a_lock_is_a_deadlock_of_the_two(
    waits: tuple[Frame, ...],
) -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, waits)
    process.blocks("futex")
    process.threads = [_thread(901, frames("flush /home/me/log.py:7"), "writer")]
    outcome = expect(build, "thread-deadlock", 1).verdict
    assert "for thread writer, which wants a lock at log.py:7" in outcome.summary


def test_the_lock_of_a_thread_in_a_collective_is_given_back_when_the_others_come_to_it() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, UPDATE)
    process.blocks("futex")
    process.threads = [_thread(901, collective("all_reduce", "report /me/m.py:7"), "metrics")]
    outcome = expect(build, "group-order-cycle", 1).verdict
    assert "thread metrics" in outcome.summary
    build.waited_s = process.still_s = 4.0
    assert verdict(build).state == "slow"


# A C call that keeps the GIL.


def gil(owner: str = "thread", **more: Any) -> tuple[EvidenceBuilder, FakeProcess]:
    """Rank 1, of which a thread or the main one has the GIL in both looks."""
    build = EvidenceBuilder()
    process = build.elsewhere(1, UPDATE)
    process.owns_gil = owner == "main"
    state, wchan = more.pop("state", "S"), more.pop("wchan", "hrtimer_nanosleep")
    helper = PythonThread(901, "helper", more.pop("stack", REWARD), owns_gil=owner == "thread")
    process.threads = [(helper, Thread(901, "helper", state, wchan, last_ran_ns=1))]
    for name, value in more.items():
        setattr(process, name, value)
    return build, process


@pytest.mark.parametrize(
    ("owner", "state", "per_s", "moves", "blamed"),
    [
        ("thread", "R", 50.0, False, True),
        ("thread", "D", 200.0, False, True),
        ("thread", "R", 49.0, False, False),
        ("thread", "R", 50.0, True, False),
        ("main", "R", 50.0, False, False),
        ("thread", "S", 0.0, False, True),  # it sleeps and keeps it
    ],
)
def test_a_thread_that_runs_keeps_the_gil_if_the_main_one_asks_for_it_in_vain(
    owner: str, state: str, per_s: float, moves: bool, blamed: bool
) -> None:
    build, process = gil(owner, state=state, wakes=round(per_s * BETWEEN_S))
    if owner == "main":
        process.state = state
    if moves:
        process.later_stack = tuple(replace(frame, line=frame.line + 1) for frame in UPDATE)
    labels = [label for label in proposed(thread_locks, build) if label.cause == "gil-held"]
    assert [label.liveness for label in labels] == (
        ["never-wakes" if state == "S" else "computing"] if blamed else []
    )


# Which waits are for a lock.


def wants(line: str) -> tuple[str, ...]:
    """The causes that are proposed of rank 1, which stands there in a futex."""
    build = EvidenceBuilder()
    process = build.elsewhere(1, (*frames(line), *UPDATE))
    process.blocks("futex")
    return tuple(label.cause for label in proposed(thread_locks, build))


IDLE = (
    "wait /usr/lib/python3.11/threading.py:320",
    "_worker /usr/lib/python3.11/concurrent/futures/thread.py:81",
)
OWN_LOOP = ("wait /home/me/pool.py:3", "_worker /home/me/pool.py:9")
LIBRARY = ("wait /usr/lib/python3.11/threading.py:320", "run /usr/lib/python3.11/threading.py:9")
READS = ("read /usr/lib/python3.11/socket.py:9", "fill /home/me/fill.py:4")


@pytest.mark.parametrize(
    ("others", "cause", "holder"),
    [
        ((), "lock-held", ""),
        ((IDLE,), "lock-held", ""),
        ((READS,), "lock-held", ", while thread worker is at fill.py:4, fill"),
        ((LIBRARY,), "lock-held", ""),
        ((OWN_LOOP,), "thread-deadlock", ""),
        ((("flush /home/me/log.py:3",),), "thread-deadlock", ""),
        ((("flush /home/me/log.py:3",), IDLE), "thread-deadlock", ""),
        (
            (("flush /home/me/log.py:3",), READS),
            "lock-held",
            ", while thread worker is at log.py:3, flush",
        ),
        (
            (("flush /home/me/log.py:3",), LIBRARY),
            "lock-held",
            ", while thread worker is at log.py:3, flush",
        ),
        (((),), "lock-held", ""),
    ],
)
def test_who_may_have_the_lock_that_a_rank_wants(
    others: tuple[tuple[str, ...], ...], cause: str, holder: str
) -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, UPDATE)
    process.blocks("futex")
    process.threads = [_thread(901 + number, frames(*lines)) for number, lines in enumerate(others)]
    label = only(thread_locks, build)
    assert label.cause == cause
    if cause == "lock-held":
        never = "waits for a lock that is never released, at train.py:31, clip"
        assert label.reason == f"{never}{holder}"


SLEEPS = "sleep /usr/lib/python3.11/time.py:1"


@pytest.mark.parametrize(
    ("lines", "limit", "deadlock"),
    [
        (("wait /usr/lib/python3.11/threading.py:320",), 0, True),
        (("wait /usr/lib/python3.11/threading.py:320",), 0x7FFE, False),  # it wakes by itself
        ((SLEEPS,), 0, False),
        (("get /usr/lib/python3.11/queue.py:171",), 0, False),
    ],
)
def test_who_waits_without_a_limit_for_a_thread_is_in_a_deadlock_with_it(
    lines: tuple[str, ...], limit: int, deadlock: bool
) -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, (*frames(*lines), *UPDATE))
    process.blocks("futex")
    process.threads = [_thread(901, frames("flush /home/me/log.py:3"))]
    process.arguments = (1, 393, 0, limit)
    causes = [label.cause for label in proposed(thread_locks, build)]
    assert causes == ["thread-deadlock"] * deadlock
