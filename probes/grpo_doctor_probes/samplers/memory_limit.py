"""How much memory the job's control group may still take: in a container, less than the host has.

The kernel kills inside the group (`oom_kill` of cgroups) long before the host is short of memory,
so `host.memory_available` is the smaller of the two. Formats: cgroup-v2.rst, cgroup-v1/memory.rst.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_probes.procs.cgroups import NO_LIMIT_BYTES, VERSION_2, control_groups
from grpo_doctor_probes.samplers.hostfiles import ProcFile


@dataclass(frozen=True, slots=True)
class _Version:
    limit: str
    used: str
    cache: bytes


_V2 = _Version("memory.max", "memory.current", b"inactive_file ")
_V1 = _Version("memory.limit_in_bytes", "memory.usage_in_bytes", b"total_inactive_file ")


@dataclass(frozen=True, slots=True)
class _Level:
    limit_bytes: int
    used: ProcFile
    stat: ProcFile
    cache: bytes


class CgroupMemory:
    """The limited levels above a process. Found once: moving a job between groups is not seen."""

    def __init__(self, pid: int, proc: Path, sys: Path) -> None:
        self._levels = list(_limited_levels(pid, proc, sys / "fs/cgroup"))

    def available_bytes(self) -> int | None:
        """Return what the tightest level leaves; None where no level has a limit.

        File pages not used lately count as available, since the kernel drops them first: without
        that, every job that reads a data set would seem to be out of memory.
        """
        available = [
            level.limit_bytes - int(level.used.read_start()) + _cache_bytes(level)
            for level in self._levels
        ]
        return max(0, min(available)) if available else None

    def close(self) -> None:
        """Close its files."""
        for level in self._levels:
            level.used.close()
            level.stat.close()


def _cache_bytes(level: _Level) -> int:
    _, separator, size = (b"\n" + level.stat.read()).partition(b"\n" + level.cache)
    return int(size.split(None, 1)[0]) if separator else 0


def _limited_levels(pid: int, proc: Path, mount: Path) -> Iterator[_Level]:
    groups = control_groups(pid, proc, mount)
    for controller, version in ((VERSION_2, _V2), ("memory", _V1)):
        for folder in groups.get(controller, ()):
            with contextlib.suppress(OSError, ValueError):
                limit_bytes = int((folder / version.limit).read_text())
                if limit_bytes < NO_LIMIT_BYTES:
                    used, stat = folder / version.used, folder / "memory.stat"
                    yield _Level(limit_bytes, ProcFile(used), ProcFile(stat), version.cache)
