"""Locks of threads."""

from __future__ import annotations

import pytest

from grpo_doctor_probes.evidence import Frame, PythonThread, Thread
from tests.evidence import EvidenceBuilder, collective, frames
from tests.verdicts import REWARD, UPDATE, expect, verdict


def _thread(pid: int, tid: int, stack: tuple, name: str = "worker") -> tuple:  # type: ignore[type-arg]
    seen = Thread(tid, name, "S", "futex_do_wait", last_ran_ns=1)
    return PythonThread(tid, name, stack), seen


def test_two_threads_that_wait_for_each_other() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, UPDATE)
    process.blocks("futex")
    process.threads = [_thread(101, 901, frames("flush /home/me/log.py:7"))]
    expect(build, "thread-deadlock", 1)


def test_a_lock_that_is_never_given_back() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, UPDATE)
    process.blocks("futex")
    expect(build, "lock-held", 1)


def test_a_recorded_rank_in_a_collective_is_not_in_a_lock() -> None:
    probe = "/x/probes/grpo_doctor_probes/collectives.py"
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
    said = expect(build, "thread-deadlock", 1).verdict
    assert "for thread writer, which wants a lock at log.py:7" in said.summary


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
    said = expect(build, "group-order-cycle", 1).verdict
    assert "thread metrics" in said.summary
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
