"""Hears of the end of every process of the job at once, and how it ended.

A thread of its own waits for them: torchrun collects a dead rank within 0.1 s and then ends the
others, so that a look twice a second would see them all gone and none first.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_probes.supervisor.oom import OomCounters, kernel_said
from grpo_doctor_probes.supervisor.pidfd import pidfd_open, wait_status

# New data-loading workers every epoch add up to thousands of helpers; the first tell enough.
# Ranks are always watched: those of a restart come last.
_MOST = 512
_END_WAIT_S = 2.0


@dataclass(frozen=True, slots=True)
class Subject:
    """A process whose end matters. `role` is in words: `rank 1`, `the engine of rank 0`.

    `rank` is that of a training process, None for a helper. `serves`: ranks can't go on without
    it, as without an engine.
    """

    pid: int
    role: str
    rank: int | None = None
    serves: bool = False


@dataclass(frozen=True, slots=True)
class Death:
    """How a process ended.

    Attributes:
        at_ns: CLOCK_MONOTONIC, within milliseconds of the end; of half a second without pidfd.
        status: its wait status; None where its parent had collected it before we could look.
        oom_kills: by how much its control group's count of such kills grew.
        kernel: the kernel's own line about it, empty without one.
    """

    subject: Subject
    at_ns: int
    status: int | None
    oom_kills: int = 0
    kernel: str = ""

    @property
    def signal(self) -> str | None:
        """The name of the signal that killed it, if one did."""
        if self.status is None or not os.WIFSIGNALED(self.status):
            return None
        with contextlib.suppress(ValueError):
            return signal.Signals(os.WTERMSIG(self.status)).name
        return f"signal {os.WTERMSIG(self.status)}"

    @property
    def in_order(self) -> bool:
        """Whether it ended with exit code 0."""
        return self.status == 0


class DeathWatch:
    """Watches processes until `close`. `watch` and `check` are for one thread."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._epoll = select.epoll()
        self._bell, self._rope = os.pipe2(os.O_CLOEXEC)
        self._epoll.register(self._bell, select.EPOLLIN)
        self._subjects: dict[int, Subject] = {}  # by pid, of all that were ever watched
        self._held: dict[int, int] = {}  # pids by pidfd
        self._unheld: set[int] = set()  # pids, where there are no pidfds
        self._oom = OomCounters(proc)
        self._deaths: list[Death] = []
        self._thread = threading.Thread(target=self._wait, name="grpo-doctor-deaths", daemon=True)
        self._thread.start()

    @property
    def deaths(self) -> tuple[Death, ...]:
        """All up to now, in their order."""
        return tuple(sorted(self._deaths, key=lambda death: death.at_ns))

    def watch(self, subject: Subject) -> None:
        """Begins to watch a process, or takes in what is known better now of one watched already.

        One that has just gone is left out.
        """
        known = subject.pid in self._subjects
        if not known and subject.rank is None and len(self._subjects) >= _MOST:
            return
        self._subjects[subject.pid] = subject
        if known:
            return
        self._oom.note(subject.pid)
        try:
            descriptor = pidfd_open(subject.pid)
        except ProcessLookupError:
            return
        if descriptor is None:
            self._unheld.add(subject.pid)
        else:
            self._held[descriptor] = subject.pid
            self._epoll.register(descriptor, select.EPOLLIN)

    def watches(self, pid: int) -> bool:
        """Whether it is or was watched."""
        return pid in self._subjects

    def check(self) -> None:
        """Looks after those that can't be held by a descriptor."""
        for pid in tuple(self._unheld):
            if not (self._proc / str(pid)).exists():
                self._unheld.discard(pid)
                self._note(pid, time.monotonic_ns(), None)

    def close(self) -> tuple[Death, ...]:
        """Ends watching; all deaths, in their order."""
        self.check()
        if self._thread.is_alive():
            os.write(self._rope, b"x")
            self._thread.join(_END_WAIT_S)
        return self.deaths

    def _wait(self) -> None:
        ringing = False
        while not ringing:
            ready = [descriptor for descriptor, _ in self._epoll.poll()]
            ringing = self._bell in ready
            self._hear([descriptor for descriptor in ready if descriptor != self._bell])
        for descriptor in (self._bell, self._rope, *self._held):
            os.close(descriptor)
        self._epoll.close()

    def _hear(self, descriptors: list[int]) -> None:
        ended = []
        for descriptor in descriptors:  # all statuses first: they are what is lost soonest
            pid = self._held.pop(descriptor)
            ended.append((pid, time.monotonic_ns(), wait_status(pid, descriptor, self._proc)))
            self._epoll.unregister(descriptor)
            os.close(descriptor)
        for pid, at_ns, status in ended:
            self._note(pid, at_ns, status)

    def _note(self, pid: int, at_ns: int, status: int | None) -> None:
        oom_kills, said = 0, ""
        if status is None or status == signal.SIGKILL:
            oom_kills, said = self._oom.grown(pid), kernel_said(pid)
        self._deaths.append(Death(self._subjects[pid], at_ns, status, oom_kills, said))
