"""The control groups of a process, and all above them: a limit of any of them counts.

Formats: cgroup-v2.rst, cgroup-v1/cgroups.rst of the kernel, and proc_pid_cgroup(5).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from grpo_doctor_probes.procs.procfs import content, read

MOUNT = Path("/sys/fs/cgroup")
VERSION_2 = ""  # its name in /proc/PID/cgroup
# Version 1 says "no limit" as the largest multiple of the page size below 2^63.
NO_LIMIT_BYTES = 2**62


def control_groups(pid: int, proc: Path, mount: Path = MOUNT) -> dict[str, list[Path]]:
    """The folders of the group of a process and of all above it, lowest first, by controller.

    Empty where /proc does not show them, or the process has gone.
    """
    try:
        lines = read(proc / str(pid) / "cgroup").decode("utf-8", "surrogateescape").splitlines()
    except OSError:
        return {}
    groups: dict[str, list[Path]] = {}
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        for controller in controllers.split(","):
            top = mount / (controller or "unified")  # a folder of its own also in hybrid mode
            if not top.is_dir() and controller == VERSION_2:
                top = mount
            if top.is_dir() or controller == VERSION_2:
                groups[controller] = list(_upwards(top, path))
    return groups


def _upwards(top: Path, path: str) -> Iterator[Path]:
    group = top / path.lstrip("/")
    # A container sees its own group at the mount point but may read the host's path here.
    if ".." in path.split("/") or not group.is_dir():
        group = top
    while group != top:
        yield group
        group = group.parent
    yield top


def number_in(file: Path) -> int | None:
    """Return the number that a file is; None for `max`, and where it can't be read."""
    text = content(file).decode("ascii", "replace").strip()
    return int(text) if text.lstrip("-").isdigit() else None


def field_in(file: Path, key: str) -> int:
    """Return the number in a line `key number` of a file; 0 without one."""
    for line in content(file).decode("ascii", "replace").splitlines():
        word, _, value = line.partition(" ")
        if word == key and value.strip().isdigit():
            return int(value)
    return 0


def oom_files(groups: Mapping[str, Sequence[Path]]) -> Iterator[Path]:
    """Yield the files that may count in `oom_kill` how often the kernel killed for memory: in the
    group of the victim and in those above, never at the top."""
    for controller, name in (("memory", "memory.oom_control"), (VERSION_2, "memory.events")):
        yield from (folder / name for folder in groups.get(controller, ()))


class Memory(NamedTuple):
    """A control group with a memory limit. `cache_bytes` are file pages not used lately, which the
    kernel drops first."""

    limit_bytes: int
    used_bytes: int
    cache_bytes: int


_MEMORY_FILES = (
    (VERSION_2, "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def memory_limits(groups: Mapping[str, Sequence[Path]]) -> Iterator[Memory]:
    """Yield the memory of each group that has a limit."""
    for controller, limit_name, used_name, cache in _MEMORY_FILES:
        for folder in groups.get(controller, ()):
            limit, used = number_in(folder / limit_name), number_in(folder / used_name)
            if limit is not None and used is not None and limit < NO_LIMIT_BYTES:
                yield Memory(limit, used, field_in(folder / "memory.stat", cache))


def memory_available_bytes(groups: Mapping[str, Sequence[Path]]) -> int | None:
    """Return what the tightest group leaves; None where none has a limit.

    The kernel kills inside the group long before the host is short of memory.
    """
    limits = memory_limits(groups)
    left = (max(0, m.limit_bytes - m.used_bytes + m.cache_bytes) for m in limits)
    return min(left, default=None)
