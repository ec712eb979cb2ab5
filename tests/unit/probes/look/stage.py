"""Real processes to look at, and what a look says of one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from grpo_doctor_probes import look
from grpo_doctor_probes.evidence import Blocked, Job, Look, Member, ProcessLook
from grpo_doctor_probes.look import pyspy
from grpo_doctor_probes.procs.procfs import descriptors
from grpo_doctor_probes.procs.tcp import tcp_table
from tests.unit.probes.conftest import until

NEEDS_PYSPY = pytest.mark.skipif(pyspy.binary() is None, reason="py-spy is not installed")
READY = "import os, sys, time; print('ready', flush=True)\n"
SERVING = """
    import ctypes, threading, time
    class Reward:
        def score(self, src, prompt):
            dst = 3
            time.sleep(60)
    def outer():
        Reward().score(1, "a secret prompt")
    threading.Thread(target=threading.Event().wait, name="he\\x1b[31mllo\\n", daemon=True).start()
    print("ready", flush=True)
    outer()
    """


def job_of(*pids: int) -> Job:
    """A job of these processes, each of them a rank."""
    return Job(
        "here",
        tuple(Member(pid, os.getpid(), 0, "rank", "r", "r", rank=r) for r, pid in enumerate(pids)),
    )


@dataclass
class Stage:
    """Starts processes and ends all of them, whatever state they are in."""

    folder: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, program: str, *arguments: str) -> int:
        """Run a Python program that prints a line when it is about to block; its pid."""
        return self.run(sys.executable, "-c", textwrap.dedent(program), *arguments)

    def run(self, *command: str) -> int:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        self.started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline(), "it did not get ready"
        return process.pid

    def end(self) -> None:
        while self.started:
            process = self.started.pop()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)
            if process.stdout is not None:
                process.stdout.close()


def process_look(pid: int) -> ProcessLook:
    """One look at one process."""
    (process,) = look.processes(job_of(pid)).processes
    return process


def asleep_in(pid: int, *wchans: str) -> Look:
    """Waits until the main thread sleeps in one of these kernel functions; that look."""
    looks: list[Look] = []

    def sleeps() -> bool:
        looks[:] = [look.processes(job_of(pid))]
        main = next(iter(looks[0].processes[0].threads), None)
        if main is None or main.state not in "SD" or main.syscall < 0:
            return False
        return any(name in main.wchan for name in wchans)

    until(sleeps)
    return looks[0]


def main_rows(pid: int, *wchans: str) -> list[Blocked]:
    """What the main thread waits for once it sleeps in one of these kernel functions."""
    looks = asleep_in(pid, *wchans)
    return [row for row in look.blocked(job_of(pid), looks) if row.tid == pid]


def listening_port(pid: int) -> int:
    """The port that a process listens on."""
    table = tcp_table(Path("/proc"), pid)
    targets = (target for _, target in descriptors("/proc", pid))
    sockets = [table.of(int(target[8:-1])) for target in targets if target.startswith("socket:[")]
    return next(end.local[1] for end in sockets if end is not None and end.state == "LISTEN")
