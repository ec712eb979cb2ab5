"""Counters and states of processes that sleep, work, are stopped, frozen or dead."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from grpo_doctor_probes import look
from tests.unit.probes.look.stage import (
    READY,
    Stage,
    asleep_in,
    job_of,
    process_look,
    until,
)


def test_a_sleeping_process_last_ran_when_it_fell_asleep(stage: Stage) -> None:
    pid = stage.start("import time; print(time.monotonic_ns(), flush=True); time.sleep(60)")
    sleeping = asleep_in(pid, "nanosleep")
    first = sleeping.processes[0].threads[0]
    assert first.state == "S"
    assert first.syscall >= 0
    looked_ns = time.monotonic_ns()
    time.sleep(0.3)  # so that an offset of the clock by less than this would show
    # A look that the machine interrupts between its two clocks is late by as much.
    until(lambda: process_look(pid).threads[0].last_ran_ns - first.last_ran_ns < 50_000_000)
    assert first.last_ran_ns < looked_ns


def test_a_busy_process_ran_just_now(stage: Stage) -> None:
    pid = stage.start(READY + "while True: pass")
    before = process_look(pid)
    until(lambda: process_look(pid).cpu_ticks > before.cpu_ticks)
    process = process_look(pid)
    assert process.state == "R"
    tick_ns = 10**9 // os.sysconf("SC_CLK_TCK")
    assert before.at_ns - tick_ns < process.threads[0].last_ran_ns < time.monotonic_ns() + tick_ns


def test_a_zombie_has_an_exit_code_and_what_is_gone_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
    until(lambda: process_look(child.pid).state == "Z")
    process = process_look(child.pid)
    assert process.exit_code is not None
    assert os.waitstatus_to_exitcode(process.exit_code) == -9
    assert look.blocked(job_of(child.pid), look.processes(job_of(child.pid))) == ()
    (stack,) = look.stacks([child.pid], at_most_s=5)
    assert (stack.threads, stack.problem) == ((), "it has ended")
    assert child.wait() == -9
    assert process_look(child.pid).state == "X"
    assert look.limits(job_of(child.pid)) == ()


def test_hostile_names_break_nothing(stage: Stage) -> None:
    pid = stage.start(
        """
        import ctypes, time
        ctypes.CDLL(None).prctl(15, b") R 1 \\x1b[2Jx\\n", 0, 0, 0)
        print("ready", flush=True)
        time.sleep(60)
        """
    )
    process = asleep_in(pid, "nanosleep").processes[0]
    assert process.threads[0].name == ") R 1 ?[2Jx?"
    assert process.threads[0].state == "S"
    assert process.threads[0].last_ran_ns > 0
