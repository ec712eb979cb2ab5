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
    pid: int, tid: int, stack: tuple[Frame, ...], name: str = "worker"
) -> tuple[PythonThread, Thread]:
    task = Thread(tid, name, "S", "futex_do_wait", last_ran_ns=1)
    return PythonThread(tid, name, stack), task


@pytest.mark.parametrize("module", ["collectives", "record/collectives"])
def test_a_recorded_rank_in_a_collective_is_not_in_a_lock(module: str) -> None:
    probe = f"/x/probes/grpo_doctor_probes/{module}.py"
    build = EvidenceBuilder(recorded=False)
    for rank in (0, 2, 3):
        process = build.rank(rank)
        process.stack = frames(f"_wrap_wait.<locals>.wait {probe}:168", "step /home/me/t.py:9")
        process.blocks("futex")
    build.elsewhere(1, REWARD).blocks("sleep")
    assert verdict(build).culprits == (1,)


def test_a_child_that_was_forked_with_a_held_lock() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, UPDATE)
    child = build.child(1, "helper", pid=300)
    child.stack = frames("log /home/me/log.py:7")
    process.blocks("child", "", 300)
    expect(build, "lock-held", 1)


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
    process.threads = [_thread(101, 901, frames("flush /home/me/log.py:7"), "writer")]
    outcome = expect(build, "thread-deadlock", 1).verdict
    assert "for thread writer, which wants a lock at log.py:7" in outcome.summary


def test_a_thread_at_work_may_have_the_lock_that_another_wants() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, WAIT)
    process.blocks("futex")
    works = PythonThread(902, "loader", frames("read /home/me/data.py:3"))
    process.threads = [
        _thread(101, 901, frames("flush /home/me/log.py:7")),
        (works, Thread(902, "loader", "R")),
    ]
    assert verdict(build).cause != "thread-deadlock"


def test_who_waits_for_a_thread_is_as_patient_as_any_wait() -> None:
    build = EvidenceBuilder()
    build.waited_s = 4.0
    process = build.elsewhere(1, WAIT)
    process.still_s = 4.0
    process.blocks("futex")
    process.threads = [_thread(101, 901, frames("flush /home/me/log.py:7"))]
    assert verdict(build).state == "slow"


def test_the_lock_of_a_thread_in_a_collective_is_given_back_when_the_others_come_to_it() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, UPDATE)
    process.blocks("futex")
    process.threads = [_thread(101, 901, collective("all_reduce", "report /me/m.py:7"), "metrics")]
    outcome = expect(build, "group-order-cycle", 1).verdict
    assert "thread metrics" in outcome.summary
    build.waited_s = process.still_s = 4.0
    assert verdict(build).state == "slow"


def test_a_c_call_that_keeps_the_gil() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, UPDATE)
    process.owns_gil, process.wchan = True, "hrtimer_nanosleep"
    expect(build, "gil-held", 1)


@pytest.mark.parametrize(
    ("state", "wchan", "blocks", "deadlock"),
    [
        ("S", "futex_do_wait", None, True),
        ("S", "hrtimer_nanosleep", None, False),
        ("R", "futex_do_wait", None, False),
        ("S", "", "futex", True),
        ("S", "futex_do_wait", "pipe", False),
    ],
)
def test_which_sleep_of_a_thread_is_one_for_a_lock(
    state: str, wchan: str, blocks: str | None, *, deadlock: bool
) -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, UPDATE)
    process.blocks("futex")
    writer = PythonThread(901, "writer", frames("flush /home/me/log.py:7"))
    process.threads = [(writer, Thread(901, "writer", state, wchan, last_ran_ns=1))]
    if blocks is not None:
        process.blocks(blocks, tid=901)
    assert (verdict(build).cause == "thread-deadlock") is deadlock


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


def test_a_rank_that_was_not_there_at_the_first_look_has_not_asked_for_the_gil_before() -> None:
    build, _ = gil(state="R", wakes=200)
    evidence = build.build()
    first = tuple(
        process_look for process_look in evidence.looks[0].processes if process_look.pid != 101
    )
    changed_evidence = replace(
        evidence, looks=(replace(evidence.looks[0], processes=first), evidence.looks[1])
    )
    assert proposed(thread_locks, changed_evidence) == ()


# Which waits are for a lock.


def wants(line: str) -> tuple[str, ...]:
    """The causes that are proposed of rank 1, which stands there in a futex."""
    build = EvidenceBuilder()
    process = build.elsewhere(1, (*frames(line), *UPDATE))
    process.blocks("futex")
    return tuple(label.cause for label in proposed(thread_locks, build))


@pytest.mark.parametrize(
    ("line", "lock"),
    [
        ("acquire /usr/lib/python3.11/threading.py:90", True),
        ("RLock.__enter__ /usr/lib/python3.11/threading.py:90", True),
        ("acquire /usr/lib/python3.11/multiprocessing/synchronize.py:90", False),
        ("wait /usr/lib/python3.11/threading.py:320", False),
        ("flush /home/me/log.py:3", True),
    ],
)
def test_a_wait_for_a_plain_lock_by_its_innermost_line(line: str, lock: bool) -> None:
    assert wants(line) == (("lock-held",) if lock else ())


def futex(tid: int, *lines: str, name: str = "worker") -> tuple[PythonThread, Thread]:
    return _thread(101, tid, frames(*lines), name)


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
    process.threads = [futex(901 + number, *lines) for number, lines in enumerate(others)]
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
    process.threads = [futex(901, "flush /home/me/log.py:3")]
    evidence = build.build()
    looks = tuple(
        replace(
            look,
            processes=tuple(
                replace(
                    process_look,
                    threads=(
                        replace(process_look.threads[0], arguments=(1, 393, 0, limit)),
                        *process_look.threads[1:],
                    ),
                )
                if process_look.pid == 101
                else process_look
                for process_look in look.processes
            ),
        )
        for look in evidence.looks
    )
    causes = [label.cause for label in proposed(thread_locks, replace(evidence, looks=looks))]
    assert causes == ["thread-deadlock"] * deadlock
