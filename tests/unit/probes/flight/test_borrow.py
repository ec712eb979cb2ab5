"""Calls into a thread of another process: every ending, and what the thread is like afterwards."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grpo_doctor_probes.flight.borrow import Borrowed, NotBorrowedError
from grpo_doctor_probes.flight.machine import NT_PRSTATUS, Call
from grpo_doctor_probes.flight.ptrace import Tracee
from grpo_doctor_probes.memory.access import WritableMemory
from grpo_doctor_probes.procstat import state_of
from tests.unit.probes.flight.sleeper import MACHINE, Target, lender_in, until

NOWHERE = 0x10  # an address that no process has


def soon() -> float:
    return time.monotonic() + 60.0


def seconds(scratch: int, duration_s: float) -> Call:
    """What nanosleep needs but its address: the time to sleep, as the scratch."""
    time_to_sleep = struct.pack("<QQ", int(duration_s), int(duration_s % 1 * 1e9))
    return Call(0, (scratch, 0), scratch=time_to_sleep)


def call_nanosleep(target: Target, thread: Borrowed, duration_s: float, deadline: float) -> str:
    sleep = seconds(thread.scratch, duration_s)
    function = target.function("nanosleep")
    return thread.call(Call(function, sleep.arguments, scratch=sleep.scratch), deadline)


def registers(target: Target) -> tuple[bytes, bytes, int, str]:
    """All that a call could leave changed in the sleeping helper."""
    until(lambda: target.system_call() == str(MACHINE.futex))
    tracee = Tracee(target.helper)
    tracee.interrupt()
    assert tracee.wait(soon())
    register_sets = (tracee.register_set(NT_PRSTATUS), tracee.register_set(MACHINE.floats))
    mask = tracee.blocked_signals()
    tracee.detach()
    lines = Path(f"/proc/{target.pid}/task/{target.helper}/status").read_text().split("\n")
    return (*register_sets, mask, next(line for line in lines if line.startswith("SigPnd")))


def test_a_call_returns_and_leaves_no_trace_in_the_thread(target: Target) -> None:
    before = registers(target)
    with target.lender() as lender, Borrowed(lender, target.helper) as thread:
        at = thread.scratch
        name = Call(target.function("gethostname"), (at, 64), scratch=b"?" * 64)
        assert thread.call(name, soon()) == "returned"
        written = lender.memory.read(at, 64).partition(b"\0")[0].decode()
    assert written == socket.gethostname()[:64]
    assert thread.stopped_ms > 0
    assert registers(target) == before
    assert target.ask("hello") == "awake hello"


def test_what_it_slept_in_goes_on(target: Target) -> None:
    target.say("nap 1.5")
    assert target.hear() == "taken"
    until(lambda: target.system_call() not in ("running", str(MACHINE.futex)))
    for _ in range(3):
        with target.lender() as lender, Borrowed(lender, target.helper) as thread:
            assert thread.call(Call(target.function("getpid")), soon()) == "returned"
    returned, _errno, slept = target.hear().split()
    assert returned == "0"  # an interrupted sleep would return -1
    assert float(slept) >= 1.5


def test_a_thread_that_waits_for_a_lock_is_put_back_at_the_deadline(target: Target) -> None:
    before = registers(target)
    with target.lender() as lender, Borrowed(lender, target.helper) as thread:
        lock = Call(target.function("pthread_mutex_lock"), (target.locked,))
        assert thread.call(lock, time.monotonic() + 0.1) == "late"
    assert not thread.left_alone
    assert registers(target) == before
    assert target.ask("hello") == "awake hello"


def test_a_thread_in_the_midst_of_work_is_left_to_put_itself_back(target: Target) -> None:
    before = registers(target)
    with target.lender() as lender, Borrowed(lender, target.helper) as thread:
        assert call_nanosleep(target, thread, 2.0, time.monotonic() + 0.05) == "late"
    assert thread.left_alone
    assert target.system_call() != str(MACHINE.futex)
    until(lambda: target.system_call() == str(MACHINE.futex))  # asleep where it was before
    assert target.ask("hello") == "awake hello"
    after = registers(target)
    assert (after[0], after[2], after[3]) == (before[0], before[2], before[3])


KILLED = """
import sys, time
from tests.unit.probes.flight.sleeper import Target
from grpo_doctor_probes.flight.borrow import Borrowed
class Found(Target):
    pid = int(sys.argv[1])
found = Found(None, int(sys.argv[2]), 0)
with found.lender() as place, Borrowed(place, found.helper) as thread:
    print("calling", flush=True)
    call_nanosleep(found, thread, 2.0, time.monotonic() + 60)
"""


def test_the_thread_puts_itself_back_when_we_are_killed_in_a_call(target: Target) -> None:
    root = Path(__file__).parents[4]
    tracer = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(target.pid), str(target.helper)],
        stdout=subprocess.PIPE,
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root}:{root / 'probes'}"},
    )
    assert tracer.stdout
    assert tracer.stdout.readline() == b"calling\n"
    until(lambda: target.system_call() not in (str(MACHINE.futex), "running"))
    tracer.kill()
    tracer.communicate()
    until(lambda: target.system_call() == str(MACHINE.futex))
    assert target.ask("hello") == "awake hello"


def test_a_call_that_faults_is_taken_back(target: Target) -> None:
    before = registers(target)
    with target.lender() as lender, Borrowed(lender, target.helper) as thread:
        assert thread.call(Call(NOWHERE), soon()) == "crashed"
    assert registers(target) == before
    assert target.ask("hello") == "awake hello"


def test_a_call_that_aborts_is_taken_back(target: Target) -> None:
    before = registers(target)
    with target.lender() as lender, Borrowed(lender, target.helper) as thread:
        assert thread.call(Call(target.function("abort")), soon()) == "crashed"
    assert registers(target) == before
    assert target.ask("hello") == "awake hello"


def test_a_process_that_is_killed_in_a_call(target: Target) -> None:
    with target.lender() as lender, Borrowed(lender, target.helper) as thread:
        end = Call(target.function("kill"), (target.pid, signal.SIGKILL))
        assert thread.call(end, soon()) == "gone"
    target.process.wait(60)


def test_a_signal_that_comes_meanwhile_is_not_lost(target: Target) -> None:
    with target.lender() as lender, Borrowed(lender, target.helper) as thread:
        term = Call(target.function("raise"), (signal.SIGTERM,))
        assert thread.call(term, soon()) == "returned"
        assert target.process.poll() is None
    assert target.process.wait(60) == -signal.SIGTERM


def test_a_signal_that_comes_before_it_stops_is_not_lost(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt = Tracee.interrupt

    def interrupt_late(tracee: Tracee) -> None:
        tracee.send(target.pid, signal.SIGTERM, MACHINE.tgkill)
        until(lambda: state_of(f"/proc/{target.helper}") == "t")
        interrupt(tracee)

    monkeypatch.setattr(Tracee, "interrupt", interrupt_late)
    with (
        target.lender() as lender,
        pytest.raises(NotBorrowedError, match="getting a signal"),
        Borrowed(lender, target.helper),
    ):
        pytest.fail("it was borrowed")
    assert target.process.wait(60) == -signal.SIGTERM


def test_a_stopped_process_answers_and_stays_stopped(target: Target) -> None:
    os.kill(target.pid, signal.SIGSTOP)
    until(lambda: state_of(f"/proc/{target.helper}") == "T")
    for _ in range(3):
        with target.lender() as lender, Borrowed(lender, target.helper) as thread:
            assert thread.call(Call(target.function("getpid")), soon()) == "returned"
        until(lambda: state_of(f"/proc/{target.helper}") == "T")
    os.kill(target.pid, signal.SIGCONT)
    assert target.ask("hello") == "awake hello"


def test_a_process_that_is_stopped_in_a_call_stays_stopped(target: Target) -> None:
    with target.lender() as lender, Borrowed(lender, target.helper) as thread:
        stop = Call(target.function("raise"), (signal.SIGSTOP,))
        assert thread.call(stop, soon()) == "returned"
    until(lambda: state_of(f"/proc/{target.helper}") == "T")
    os.kill(target.pid, signal.SIGCONT)
    assert target.ask("hello") == "awake hello"


def test_a_thread_that_is_awake_is_not_borrowed() -> None:
    busy = subprocess.Popen(
        [sys.executable, "-c", "print(1, flush=True)\nwhile True: pass"], stdout=subprocess.PIPE
    )
    try:
        assert busy.stdout
        busy.stdout.readline()
        with WritableMemory(busy.pid) as memory:
            borrowed = Borrowed(lender_in(busy.pid, memory), busy.pid)
            with pytest.raises(NotBorrowedError, match="woke up"), borrowed:
                pytest.fail("it was borrowed")
        until(lambda: state_of(f"/proc/{busy.pid}") == "R")
    finally:
        busy.kill()
        busy.communicate()
