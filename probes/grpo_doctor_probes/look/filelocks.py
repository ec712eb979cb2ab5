"""Who holds a file lock that another process waits for. Format: proc_locks(5)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grpo_doctor_probes.procfs import read

if TYPE_CHECKING:
    from pathlib import Path

_LINE = re.compile(
    rb"^(?P<number>\d+): (?P<waits>-> )?(?P<kind>\w+)\s+\w+\s+\w+\s+(?P<pid>-?\d+)\s+"
    rb"(?P<file>[0-9a-f]+:[0-9a-f]+:\d+)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Lock:
    """A line of /proc/locks. `pid` is who took it, -1 for locks of an open file (OFD)."""

    number: int
    waits: bool
    kind: str
    pid: int
    file: str


def parse_locks(text: bytes) -> list[Lock]:
    """The lines of /proc/locks; those that are not understood are left out."""
    return [
        Lock(
            int(found["number"]),
            found["waits"] is not None,
            found["kind"].decode(),
            int(found["pid"]),
            found["file"].decode(),
        )
        for found in _LINE.finditer(text)
    ]


def blocker_of(locks: list[Lock], pid: int) -> Lock | None:
    """The lock that process `pid` waits for; None when it waits for none, or does not any more."""
    for lock in locks:
        if lock.waits and lock.pid == pid:
            return next((one for one in locks if one.number == lock.number and not one.waits), None)
    return None


def holding_descriptors(proc: Path, candidates: list[tuple[int, int]], lock: Lock) -> list[int]:
    """Processes with a descriptor on which `lock` is held, of `candidates` (pid, descriptor).

    A flock belongs to the open file, so it outlives who took it in every process that inherited
    that descriptor.
    """
    found = set()
    for pid, fd in candidates:
        try:
            text = read(f"{proc}/{pid}/fdinfo/{fd}")
        except OSError:
            continue
        held = parse_locks(text.replace(b"lock:\t", b""))
        if any(one.file == lock.file and one.kind == lock.kind for one in held):
            found.add(pid)
    return sorted(found)


def read_locks(proc: Path) -> list[Lock]:
    """All locks of the host; none where /proc/locks is hidden."""
    try:
        return parse_locks(read(f"{proc}/locks"))
    except OSError:
        return []
