"""Hears of the end of every process of the job at once, and how it ended.

A thread of its own waits for them: torchrun collects a dead rank within 0.1 s and then ends the
others, so that a check twice a second would see them all gone and none first.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import struct
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_probes.procs.cgroups import VERSION_2, control_groups, field_in
from grpo_doctor_probes.procs.kmsg import KMSG, parse_record, records
from grpo_doctor_probes.procs.procstat import read_stat

# linux/pidfd.h: PIDFD_GET_INFO is _IOWR(0xFF, 11, struct pidfd_info), whose first version is the
# 64 bytes of mask, cgroupid, eleven ids and exit_code.
_INFO = struct.Struct("=QQ11Ii")
_GET_INFO = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11
_EXIT = 1 << 3
_ATTEMPTS, _PAUSE_S = 10, 0.002
# New data-loading workers every epoch add up to thousands of helpers; the first tell enough.
# Ranks are always watched: those of a restart come last.
_MOST = 512
_END_WAIT_S = 2.0
# A process number of an hour ago may be another process's now.
_LATELY_S = 60.0
_OOM_KILLS = "oom_kill"


def pidfd_open(pid: int) -> int | None:
    """Return a descriptor of the process; None where the kernel (before 5.3) or a sandbox has none.

    Raises:
        ProcessLookupError: there is no such process.
    """
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except (OSError, AttributeError):
        return None


def wait_status(pid: int, descriptor: int | None, proc: Path = Path("/proc")) -> int | None:
    """Return the wait status of a process that has just ended; None where it is not known any more.

    How a child of somebody else ended is readable only while it is a zombie. Launchers collect
    theirs within milliseconds; since Linux 6.15 the descriptor itself still has it afterwards.
    """
    for _ in range(_ATTEMPTS):
        status = _of_zombie(pid, proc)
        if status is None and descriptor is not None:
            status = _after_reaping(descriptor)
        if status is not None or descriptor is None:
            return status
        time.sleep(_PAUSE_S)  # it is being collected: no zombie any more, and not yet gone
    return None


def _of_zombie(pid: int, proc: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        stat = read_stat(proc / str(pid))
        if stat.state == "Z":
            return stat.wait_status
    return None


def _after_reaping(descriptor: int) -> int | None:
    answer = bytearray(_INFO.pack(_EXIT, *[0] * 13))
    with contextlib.suppress(OSError):
        fcntl.ioctl(descriptor, _GET_INFO, answer)
        mask, *_, status = _INFO.unpack(answer)
        if mask & _EXIT:
            return int(status)
    return None


class OomCounters:
    """How often the kernel killed for memory in the groups of some processes.

    Formats: cgroup-v2.rst (`memory.events`), cgroup-v1/memory.rst (`memory.oom_control`).
    """

    def __init__(self, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> None:
        self._proc, self._mount = proc, sys / "fs/cgroup"
        self._file_of: dict[int, Path] = {}
        self._count: dict[Path, int] = {}

    def note(self, pid: int) -> None:
        """Remembers where `pid` lives and what is counted there by now."""
        file = _counting_file(pid, self._proc, self._mount)
        if file is not None:
            self._file_of[pid] = file
            self._count.setdefault(file, field_in(file, _OOM_KILLS))

    def grown(self, pid: int) -> int:
        """Return how many kills its group counts that were not there at the previous look."""
        file = self._file_of.pop(pid, None)
        if file is None:
            return 0
        before, self._count[file] = self._count[file], field_in(file, _OOM_KILLS)
        return max(0, self._count[file] - before)


def kernel_line(pid: int, kmsg: Path = KMSG) -> str:
    """The kernel's line about killing `pid` lately; empty without one or without the right."""
    line = ""
    with contextlib.suppress(OSError):
        for record in records(kmsg):
            line = _about(record, pid) or line
    return line


def _about(record: bytes, pid: int) -> str:
    if f"illed process {pid} ".encode() not in record or (parsed := parse_record(record)) is None:
        return ""
    at_s, text = parsed
    return text.decode("utf-8", "replace") if time.monotonic() - at_s <= _LATELY_S else ""


def _counting_file(pid: int, proc: Path, mount: Path) -> Path | None:
    groups = control_groups(pid, proc, mount)
    for controller, name in (("memory", "memory.oom_control"), (VERSION_2, "memory.events")):
        folders = groups.get(controller, [])
        for folder in (*folders[:1], *folders[-1:]):
            if (folder / name).is_file():
                return folder / name
    return None


@dataclass(frozen=True, slots=True)
class Subject:
    """A process whose end matters. `role` is in words: `rank 1`, `the engine of rank 0`.

    `rank` is that of a training process, None for a helper. `serves`: ranks can't continue without
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
        # Those that live as far as is known; the number of an ended one may be another's.
        self._watched: dict[int, Subject] = {}
        self._ever = 0
        self._ended_pids: set[int] = set()  # pids
        self._pid_of_fd: dict[int, int] = {}  # pids by pidfd
        self._pids_without_fd: set[int] = set()  # pids, where there are no pidfds
        self._oom = OomCounters(proc)
        self._deaths: list[Death] = []
        self._thread = threading.Thread(target=self._wait, name="grpo-doctor-deaths", daemon=True)
        self._thread.start()

    @property
    def deaths(self) -> tuple[Death, ...]:
        """All up to now, in their order."""
        return tuple(sorted(self._deaths, key=lambda death: death.at_ns))

    def watch(self, subject: Subject) -> None:
        """Begin to watch a process, or take in what is known better now of one watched already.

        One that has just gone is left out.
        """
        if subject.pid in self._watched:
            self._watched[subject.pid] = subject
            return
        if (subject.rank is None and self._ever >= _MOST) or self._is_told(subject.pid):
            return
        self._ever += 1
        self._oom.note(subject.pid)
        try:
            descriptor = pidfd_open(subject.pid)
        except ProcessLookupError:
            return
        self._watched[subject.pid] = subject
        if descriptor is None:
            self._pids_without_fd.add(subject.pid)
        else:
            self._pid_of_fd[descriptor] = subject.pid
            self._epoll.register(descriptor, select.EPOLLIN)

    def watches(self, pid: int) -> bool:
        """Return whether it is watched, or was and is not collected yet."""
        return pid in self._watched or self._is_told(pid)

    def _is_told(self, pid: int) -> bool:
        """Whether its end was heard of and it is still there, as its parent has not collected it.

        One that lives is another process, which was given the number of an ended one.
        """
        if pid not in self._ended_pids:
            return False
        with contextlib.suppress(OSError, ValueError, IndexError):
            return read_stat(self._proc / str(pid)).dead
        return True

    def check(self) -> None:
        """Look after those that can't be held by a descriptor."""
        for pid in tuple(self._pids_without_fd):
            if not (self._proc / str(pid)).exists():
                self._pids_without_fd.discard(pid)
                self._note(self._take(pid), time.monotonic_ns(), None)

    def close(self) -> tuple[Death, ...]:
        """End watching; all deaths, in their order."""
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
        for descriptor in (self._bell, self._rope, *self._pid_of_fd):
            os.close(descriptor)
        self._epoll.close()

    def _hear(self, descriptors: list[int]) -> None:
        ends = []
        for descriptor in descriptors:  # all statuses first: they are what is lost soonest
            pid = self._pid_of_fd.pop(descriptor)
            at_ns, status = time.monotonic_ns(), wait_status(pid, descriptor, self._proc)
            ends.append((self._take(pid), at_ns, status))
            self._epoll.unregister(descriptor)
            os.close(descriptor)
        for subject, at_ns, status in ends:
            self._note(subject, at_ns, status)

    def _take(self, pid: int) -> Subject:
        """Who has ended; from now on the number may be another's."""
        self._ended_pids.add(pid)
        return self._watched.pop(pid)

    def _note(self, subject: Subject, at_ns: int, status: int | None) -> None:
        oom_kills, kernel = 0, ""
        if status is None or status == signal.SIGKILL:
            oom_kills, kernel = self._oom.grown(subject.pid), kernel_line(subject.pid)
        self._deaths.append(Death(subject, at_ns, status, oom_kills, kernel))
