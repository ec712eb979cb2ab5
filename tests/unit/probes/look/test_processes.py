"""Counters and states of processes: of those made of files, and of real ones."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grpo_doctor_probes import look
from grpo_doctor_probes.evidence import ProcessLook
from grpo_doctor_probes.look.processes import processes
from tests.unit.probes.conftest import until
from tests.unit.probes.discover.fakeproc import FakeProc
from tests.unit.probes.look.stage import READY, Stage, job_of, process_look

PID = 70
IO = "rchar: 1\nwchar: 2\nsyscr: 30\nsyscw: 4\nread_bytes: 5\n"
SCHED = """x (1, #threads: 1)
-------------------------------------------------------------------
nr_voluntary_switches : {} \nnr_involuntary_switches : {}
"""
KILLED = 9
HOSTILE = ") R 1 \x1b[2Jx\n"


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    fake = FakeProc(tmp_path)
    fake.add(PID, 1, "python train.py")
    return fake


def threads(proc: FakeProc, *tids: int, state: str = "S", status: int = 0) -> None:
    """The threads of the process, in this state; the first has the process's counters."""
    words = ["0"] * 50
    words[0], words[1], words[19], words[49] = state, "1", "1001", str(status)
    words[9], words[11], words[12] = "7", "20", "3"
    for tid in tids:
        folder = proc.root / str(PID) / "task" / str(tid)
        folder.mkdir(parents=True, exist_ok=True)
        name = "python" if tid == PID else HOSTILE
        (folder / "stat").write_text(f"{tid} ({name}) {' '.join(words)}\n")
        (folder / "sched").write_text(SCHED.format(tid, 2))
    (proc.root / str(PID) / "stat").write_text(f"{PID} (python) {' '.join(words)}\n")
    (proc.root / str(PID) / "io").write_text(IO)
    (proc.root / str(PID) / "syscall").write_text("running\n")
    (proc.root / str(PID) / "status").write_text("Name:\tpython\nVmSwap:\t      12 kB\n")


def hide(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """These files of processes are not for us."""
    opened = os.open

    def refuse(path: str, *flags: int) -> int:
        if os.fspath(path).endswith(names) and "/task/" not in os.fspath(path):
            raise PermissionError
        return opened(path, *flags)

    monkeypatch.setattr(os, "open", refuse)


def look_of(proc: FakeProc) -> ProcessLook:
    (look,) = processes(job_of(PID), proc.root).processes
    return look


def test_what_a_process_has_done(proc: FakeProc) -> None:
    threads(proc, PID, 71)
    look = look_of(proc)
    assert (look.read_bytes, look.written_bytes, look.cpu_ticks) == (1, 2, 23)
    assert (look.major_faults, look.swap_bytes) == (7, 12 * 1024)
    assert (look.state, look.exit_code, look.problem) == ("S", None, "")
    names = [(thread.name, thread.state) for thread in look.threads]
    assert names == [("python", "S"), (") R 1 ?[2Jx?", "S")]


@pytest.mark.parametrize(
    ("hidden", "state", "words", "exit_code"),
    [
        (("/io",), "S", "the I/O counters and system calls of process 70 are hidden: ", None),
        (("/syscall",), "S", "the system calls of process 70 are hidden: ", None),
        (("/io", "/syscall"), "S", "the I/O counters and system calls of process 70", None),
        (("/io",), "Z", "the I/O counters and system calls of process 70 are hidden: ", None),
        (("/syscall",), "Z", "", KILLED),  # it is in none any more
        ((), "S", "", None),
    ],
)
def test_what_is_hidden_is_said_with_what_to_do(
    proc: FakeProc,
    monkeypatch: pytest.MonkeyPatch,
    hidden: tuple[str, ...],
    state: str,
    words: str,
    exit_code: int | None,
) -> None:
    threads(proc, PID, state=state, status=KILLED)
    hide(monkeypatch, *hidden)
    look = look_of(proc)
    assert look.problem.startswith(words)
    assert bool(look.problem) is bool(words)
    assert (look.exit_code, look.written_bytes) == (exit_code, 0 if "/io" in hidden else 2)


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
