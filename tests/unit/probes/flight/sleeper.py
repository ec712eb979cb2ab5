"""A process whose helper thread sleeps in a known system call and tells how it fared."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_probes.flight import injection
from grpo_doctor_probes.flight.borrow import TargetProcess
from grpo_doctor_probes.flight.injection import find_bare_return
from grpo_doctor_probes.memory.access import Memory, WritableMemory, mapped
from grpo_doctor_probes.memory.elf import library

MACHINE = injection.MACHINES[os.uname().machine]
TARGET = """
import ctypes, os, queue, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
locked = ctypes.create_string_buffer(64)
libc.pthread_mutex_lock(locked)
wishes, answers = queue.SimpleQueue(), queue.SimpleQueue()
class Time(ctypes.Structure):
    _fields_ = [("s", ctypes.c_long), ("ns", ctypes.c_long)]
def nap(seconds):
    left = Time(int(seconds), int(seconds % 1 * 1e9))
    begun = time.monotonic()
    ctypes.set_errno(0)
    returned = libc.nanosleep(ctypes.byref(left), None)
    return f"{returned} {ctypes.get_errno()} {time.monotonic() - begun}"
def helper():
    while True:
        wish = wishes.get()
        answers.put(nap(float(wish[4:])) if wish.startswith("nap ") else "awake " + wish)
thread = threading.Thread(target=helper, daemon=True)
thread.start()
print(thread.native_id, ctypes.addressof(locked), flush=True)
for line in sys.stdin:
    wish = line.strip()
    if wish == "unlock":
        libc.pthread_mutex_unlock(locked)
        continue
    wishes.put(wish)
    print("taken", flush=True)
    print(answers.get(), flush=True)
"""


@dataclass
class Target:
    """The process; `locked` is the address of a mutex that is held."""

    process: subprocess.Popen[str]
    helper: int
    locked: int

    @property
    def pid(self) -> int:
        return self.process.pid

    def say(self, wish: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(wish + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def ask(self, wish: str) -> str:
        """The helper thread's answer: that it lives."""
        self.say(wish)
        assert self.hear() == "taken"
        return self.hear()

    def system_call(self, tid: int | None = None) -> str:
        path = Path(f"/proc/{self.pid}/task/{tid or self.helper}/syscall")
        return path.read_text().split()[0]

    @contextmanager
    def lender(self) -> Iterator[TargetProcess]:
        with WritableMemory(self.pid) as memory:
            yield lender_in(self.pid, memory)

    def function(self, name: str) -> int:
        with Memory(self.pid) as memory:
            libc = next(m for m in mapped(self.pid) if m.name == "libc.so.6" and not m.offset)
            address = library(memory.read, libc.start).address_of(name)
            assert address
            return address


def lender_in(pid: int, memory: WritableMemory) -> TargetProcess:
    """Where a call into process `pid` is made; on this machine's processor."""
    maps = mapped(pid)
    return_to = injection.find_return_code(MACHINE, maps, memory)
    return TargetProcess(pid, MACHINE, memory, return_to, find_bare_return(MACHINE, maps, memory))


@contextmanager
def lender_of(pid: int) -> Iterator[TargetProcess]:
    """The same, with its memory open meanwhile."""
    with WritableMemory(pid) as memory:
        yield lender_in(pid, memory)


def until(true: Callable[[], bool], at_most_s: float = 60.0) -> None:
    """Waits for a condition of another process."""
    deadline = time.monotonic() + at_most_s
    while not true():
        assert time.monotonic() < deadline, "the condition never came"
        time.sleep(0.002)


@contextmanager
def started() -> Iterator[Target]:
    """The process, its helper asleep and waiting for a wish."""
    process = subprocess.Popen(
        [sys.executable, "-c", TARGET], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    helper, locked = map(int, process.stdout.readline().split())
    target = Target(process, helper, locked)
    until(lambda: target.system_call() == str(MACHINE.futex))
    try:
        yield target
    finally:
        process.kill()
        process.communicate()
