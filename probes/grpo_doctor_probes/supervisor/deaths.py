"""Hears of the end of every process of the job at once, and how it ended; who was first, in words.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_doctor_probes.procs.cgroups import control_groups, field_in, oom_files
from grpo_doctor_probes.procs.kmsg import KMSG, parse_record, records
from grpo_doctor_probes.procs.printable import MESSAGE_LIMIT, printable
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
        status = None
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = read_stat(proc / str(pid))
            status = stat.wait_status if stat.state == "Z" else None
        if status is None and descriptor is not None:
            status = _after_reaping(descriptor)
        if status is not None or descriptor is None:
            return status
        time.sleep(_PAUSE_S)  # it is being collected: no zombie any more, and not yet gone
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
        files = oom_files(control_groups(pid, self._proc, self._mount))
        if (file := next(filter(Path.is_file, files), None)) is not None:
            self._file_of[pid] = file
            self._count.setdefault(file, field_in(file, _OOM_KILLS))

    def grown(self, pid: int) -> int:
        """Return how many kills its group counts that were not there at the previous look."""
        file = self._file_of.pop(pid, None)
        if file is None:
            return 0
        before, self._count[file] = self._count[file], field_in(file, _OOM_KILLS)
        return max(0, self._count[file] - before)


def kernel_line(pid: int) -> str:
    """The kernel's line about killing `pid` lately; empty without one or without the right."""
    line = ""
    with contextlib.suppress(OSError):
        for record in records(KMSG):
            parsed = parse_record(record) if f"illed process {pid} ".encode() in record else None
            if parsed is not None and time.monotonic() - parsed[0] <= _LATELY_S:
                line = parsed[1].decode("utf-8", "replace")
    return line


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


# An engine that ends this long before a rank fails is a suspect, not a coincidence.
_SHORTLY_S = 60.0
_FOLLOWERS_NAMED = 3
# Nobody sends these to end a process: it did something wrong itself.
_CRASHES = ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL", "SIGFPE", "SIGSYS")


def obituary(deaths: Sequence[Death], phases: Mapping[int, str]) -> list[str]:
    """Sentences without a full stop; none if nothing failed.

    A rank that fails ends its helpers on its way out, so a helper counts as the first only where
    it crashed or the kernel killed it.

    Args:
        deaths: in any order.
        phases: by pid, the last open phase of those that were recorded.
    """
    ordered = sorted(deaths, key=lambda death: death.at_ns)
    first = next((d for d in ordered if _is_cause(d)), None)
    if first is None:
        return []
    sentences = [_first(first, phases.get(first.subject.pid, ""))]
    position = ordered.index(first)
    for before in ordered[:position]:
        earlier_s = (first.at_ns - before.at_ns) / 1e9
        if before.subject.serves and earlier_s <= _SHORTLY_S:
            sentences.append(
                f"{_name(before)} had ended {earlier_s:.1f} s before that, {_how(before)}"
            )
    followers = [
        d for d in ordered[position + 1 :] if d.subject.rank is not None and not d.in_order
    ]
    if followers:
        listed = ", ".join(_follower(first, d) for d in followers[:_FOLLOWERS_NAMED])
        more = len(followers) - _FOLLOWERS_NAMED
        sentences.append(f"then {listed}" + (f" and {more} more" if more > 0 else ""))
    return sentences


def as_facts(deaths: Sequence[Death], phases: Mapping[int, str]) -> list[dict[str, Any]]:
    """For `run.json`, in order of time."""
    return [
        {
            "pid": death.subject.pid,
            "role": death.subject.role,
            "rank": death.subject.rank,
            "at_ns": death.at_ns,
            "wait_status": death.status,
            "signal": death.signal,
            "phase": phases.get(death.subject.pid),
            "oom_kills": death.oom_kills,
            "kernel": death.kernel or None,
        }
        for death in sorted(deaths, key=lambda death: death.at_ns)
    ]


def _is_cause(death: Death) -> bool:
    if death.subject.rank is not None:
        return not death.in_order
    return bool(death.oom_kills or death.kernel) or death.signal in _CRASHES


def _first(death: Death, phase: str) -> str:
    text = f"{_name(death)} {'died' if death.signal else 'ended'} first, {_how(death)}"
    if phase:
        text += f", while in {printable(phase)}"
    if death.oom_kills:
        text += f"; the kernel killed it for memory (memory.events oom_kill +{death.oom_kills})"
    elif death.kernel:
        text += f"; the kernel says: {printable(death.kernel, MESSAGE_LIMIT)}"
    return text


def _follower(first: Death, death: Death) -> str:
    return f"{_name(death)} {(death.at_ns - first.at_ns) / 1e9:.1f} s later, {_how(death)}"


def _name(death: Death) -> str:
    return f"{printable(death.subject.role)} (pid {death.subject.pid})"


def _how(death: Death) -> str:
    if death.status is None:
        return "cause unknown"
    if death.signal is not None:
        return f"by {death.signal}"
    return "in order" if death.in_order else f"with exit code {death.status >> 8}"
