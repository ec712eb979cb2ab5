"""Who on this host holds which pipe, socket or file."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_probes.printable import printable
from grpo_doctor_probes.procfs import descriptors, numbers
from grpo_doctor_probes.procstat import read_stat

_FLAGS = re.compile(rb"^flags:\s*([0-7]+)", re.MULTILINE)
_POLLED = re.compile(rb"^tfd:\s*(\d+)\s+events:\s*([0-9a-f]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Entry:
    """A process of the host, as far as everybody may see it."""

    pid: int
    parent: int
    session: int
    state: str
    name: str
    kernel: bool


def process_table(proc: Path) -> dict[int, Entry]:
    """All processes of the host by number."""
    found = {}
    for pid in numbers(proc):
        try:
            stat = read_stat(f"{proc}/{pid}")
        except (OSError, ValueError):
            continue
        found[pid] = Entry(
            pid=pid,
            parent=stat.parent,
            session=stat.session,
            state=stat.state,
            name=printable(stat.name, 32),
            kernel=stat.kernel,
        )
    return found


class Holders:
    """Every descriptor of every readable process, by what it points to (`pipe:[123]`, a path)."""

    def __init__(self, proc: Path, table: dict[int, Entry]) -> None:
        self._proc = proc
        self._by_target: dict[str, list[tuple[int, int]]] = {}
        self._hidden: set[int] = set()  # sessions with a process that we may not look into
        for entry in table.values():
            if not entry.kernel:
                self._scan(entry)

    def of(self, target: str) -> list[tuple[int, int]]:
        """`(pid, descriptor)` of all that point to `target`."""
        return self._by_target.get(target, [])

    def complete_for(self, session: int) -> bool:
        """Whether all processes could be read that may share a pipe with this session.

        Other users' daemons never can, and hold no pipe of a job.
        """
        return session not in self._hidden

    def pids(self, target: str, *, wanted: int | None = None) -> list[int]:
        """Processes that hold `target`; with `wanted` (O_RDONLY, O_WRONLY) open for that."""
        found = {
            pid
            for pid, fd in self.of(target)
            if wanted is None or access(self._proc, pid, fd) in {wanted, os.O_RDWR}
        }
        return sorted(found)

    def _scan(self, entry: Entry) -> None:
        try:
            for fd, target in descriptors(self._proc, entry.pid):
                self._by_target.setdefault(target, []).append((entry.pid, fd))
        except PermissionError:
            self._hidden.add(entry.session)
        except OSError:  # it has gone
            pass


def target_of(proc: Path, pid: int, fd: int) -> str:
    """What a descriptor points to, raw; empty where it is closed or hidden."""
    try:
        return os.readlink(f"{proc}/{pid}/fd/{fd}")  # noqa: PTH115 - Path would normalise it
    except OSError:
        return ""


def access(proc: Path, pid: int, fd: int) -> int | None:
    """O_RDONLY, O_WRONLY or O_RDWR; None where hidden."""
    flags = _FLAGS.search(_fdinfo(proc, pid, fd))
    return int(flags[1], 8) & os.O_ACCMODE if flags else None


def watched_by_epoll(proc: Path, pid: int, fd: int) -> list[tuple[int, bool, bool]]:
    """`(descriptor, for reading, for writing)` of all that an epoll descriptor watches."""
    return [
        (int(watched), bool(int(events, 16) & 0x1), bool(int(events, 16) & 0x4))
        for watched, events in _POLLED.findall(_fdinfo(proc, pid, fd))
    ]


def _fdinfo(proc: Path, pid: int, fd: int) -> bytes:
    try:
        return Path(f"{proc}/{pid}/fdinfo/{fd}").read_bytes()
    except OSError:
        return b""
