"""Who on this host holds which pipe, socket, file or lock: proc_pid_fd(5), proc_locks(5)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_probes.discover.scan import Process
from grpo_doctor_probes.procs.procfs import content, descriptors, link

_FLAGS = re.compile(rb"^flags:\s*([0-7]+)", re.MULTILINE)
_POLLED = re.compile(rb"^tfd:\s*(\d+)\s+events:\s*([0-9a-f]+)", re.MULTILINE)
_LOCK_LINE = re.compile(
    rb"^(?P<number>\d+): (?P<waits>-> )?(?P<kind>\w+)\s+\w+\s+\w+\s+(?P<pid>-?\d+)\s+"
    rb"(?P<file>[0-9a-f]+:[0-9a-f]+:\d+)",
    re.MULTILINE,
)


class Holders:
    """Every descriptor of every readable process, by what it points to (`pipe:[123]`, a path)."""

    def __init__(self, proc: Path, processes: Mapping[int, Process]) -> None:
        self._proc = proc
        self._by_target: dict[str, list[tuple[int, int]]] = {}
        self._hidden: set[int] = set()  # sessions with a process that we may not look into
        for process in processes.values():
            if not process.kernel:
                self._scan(process)

    def of(self, target: str) -> list[tuple[int, int]]:
        """`(pid, descriptor)` of all that point to `target`."""
        return self._by_target.get(target, [])

    def complete_for(self, session: int) -> bool:
        """Return whether all processes could be read that may share a pipe with this session.

        Other users' daemons never can, and hold no pipe of a job.
        """
        return session not in self._hidden

    def pids(self, target: str, *, mode: int | None = None) -> list[int]:
        """Processes that hold `target`; with `mode` (O_RDONLY, O_WRONLY) open for that."""
        holders = self.of(target)
        if mode is not None:
            modes = {mode, os.O_RDWR}
            holders = [holder for holder in holders if access(self._proc, *holder) in modes]
        return sorted({pid for pid, _ in holders})

    def _scan(self, process: Process) -> None:
        try:
            for fd, target in descriptors(self._proc, process.pid):
                self._by_target.setdefault(target, []).append((process.pid, fd))
        except PermissionError:
            self._hidden.add(process.session)
        except OSError:  # it has gone
            pass


def target_of(proc: Path, pid: int, fd: int) -> str:
    """Return what a descriptor points to, raw; empty where it is closed or hidden."""
    return link(f"{proc}/{pid}/fd/{fd}")


def access(proc: Path, pid: int, fd: int) -> int | None:
    """O_RDONLY, O_WRONLY or O_RDWR; None where hidden."""
    flags = _FLAGS.search(content(f"{proc}/{pid}/fdinfo/{fd}"))
    return int(flags[1], 8) & os.O_ACCMODE if flags else None


def watched_by_epoll(proc: Path, pid: int, fd: int) -> list[tuple[int, bool, bool]]:
    """`(descriptor, for reading, for writing)` of all that an epoll descriptor watches."""
    return [
        (int(watched), bool(int(events, 16) & 0x1), bool(int(events, 16) & 0x4))
        for watched, events in _POLLED.findall(content(f"{proc}/{pid}/fdinfo/{fd}"))
    ]


@dataclass(frozen=True, slots=True)
class Lock:
    """A line of /proc/locks. `pid` is who took it, -1 for locks of an open file (OFD)."""

    number: int
    waits: bool
    kind: str
    pid: int
    file: str


def parse_locks(text: bytes) -> list[Lock]:
    """Return the lines of /proc/locks; those that are not understood are left out."""
    return [
        Lock(
            int(lock["number"]),
            lock["waits"] is not None,
            lock["kind"].decode(),
            int(lock["pid"]),
            lock["file"].decode(),
        )
        for lock in _LOCK_LINE.finditer(text)
    ]


def blocker_of(locks: list[Lock], pid: int) -> Lock | None:
    """The lock that process `pid` waits for; None when it waits for none, or does not any more."""
    number = next((lock.number for lock in locks if lock.waits and lock.pid == pid), None)
    return next((lock for lock in locks if lock.number == number and not lock.waits), None)


def holding_descriptors(proc: Path, candidates: list[tuple[int, int]], lock: Lock) -> list[int]:
    """Processes with a descriptor on which `lock` is held, of `candidates` (pid, descriptor).

    A flock belongs to the open file, so it outlives who took it in every process that inherited
    that descriptor.
    """
    holders = set()
    for pid, fd in candidates:
        locks = parse_locks(content(f"{proc}/{pid}/fdinfo/{fd}").replace(b"lock:\t", b""))
        if (lock.file, lock.kind) in {(entry.file, entry.kind) for entry in locks}:
            holders.add(pid)
    return sorted(holders)


def read_locks(proc: Path) -> list[Lock]:
    """Return all locks of the host; none where /proc/locks is hidden."""
    return parse_locks(content(f"{proc}/locks"))
