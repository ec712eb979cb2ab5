"""The control groups of a process, and all above them: a limit of any of them counts.

Formats: cgroup-v2.rst, cgroup-v1/cgroups.rst of the kernel, and proc_pid_cgroup(5).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from grpo_doctor_probes.procs.procfs import read

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
            top = _top(controller, mount)
            if top is not None:
                groups[controller] = list(_upwards(top, path))
    return groups


def _top(controller: str, mount: Path) -> Path | None:
    if controller != VERSION_2:
        folder = mount / controller
        return folder if folder.is_dir() else None
    hybrid = mount / "unified"
    return hybrid if hybrid.is_dir() else mount


def _upwards(top: Path, path: str) -> Iterator[Path]:
    group = top / path.lstrip("/")
    # A container sees its own group at the mount point but may read the host's path here.
    if ".." in path.split("/") or not group.is_dir():
        group = top
    while group != top:
        yield group
        group = group.parent
    yield top
