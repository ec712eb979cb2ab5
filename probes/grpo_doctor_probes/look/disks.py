"""Free space of the file systems that a job uses, asked so that a dead one cannot hold us."""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from grpo_doctor_probes.bounded import within
from grpo_doctor_probes.evidence import Disk
from grpo_doctor_probes.look.descriptors import access
from grpo_doctor_probes.look.mounts import Mount, mounts, on_mount
from grpo_doctor_probes.printable import printable
from grpo_doctor_probes.procfs import descriptors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from grpo_doctor_probes.evidence import Job

_AT_MOST_S = 1.0
_MOST_DISKS = 32
_MOST_DESCRIPTORS = 512  # of one process
_ALWAYS = ("/tmp", "/dev/shm")  # noqa: S108 - they fill up, that is why they are asked
_NO_DISKS = frozenset(
    {"proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue", "devtmpfs", "securityfs", "bpf"}
)


def disks(job: Job, proc: Path) -> tuple[Disk, ...]:
    """Each file system once: of working directories, of files open for writing, /tmp, /dev/shm."""
    wanted: dict[tuple[str, str], tuple[int, str, Mount]] = {}
    for pid, known, path in _paths(job, proc):
        mount = on_mount(known, path)
        if mount is not None and mount.kind not in _NO_DISKS:
            wanted.setdefault((mount.point, mount.source), (pid, path, mount))
    asked = list(wanted.values())[:_MOST_DISKS]
    if not asked:
        return ()
    # All at once: several mounts of one dead server must not add up.
    with ThreadPoolExecutor(len(asked), thread_name_prefix="disks") as pool:
        return tuple(pool.map(lambda one: _ask(proc, *one), asked))


def _paths(job: Job, proc: Path) -> Iterator[tuple[int, list[Mount], str]]:
    """Paths that matter, with the mounts as their process sees them."""
    by_namespace: dict[str, list[Mount]] = {}
    for place, member in enumerate(job.members):
        namespace = _namespace(proc, member.pid)
        known = by_namespace.get(namespace)
        if known is None:
            known = by_namespace[namespace] = mounts(proc, member.pid)
        if place == 0:
            yield from ((member.pid, known, path) for path in _ALWAYS)
        try:
            yield member.pid, known, os.readlink(f"{proc}/{member.pid}/cwd")  # noqa: PTH115
        except OSError:
            continue
        yield from ((member.pid, known, path) for path in _written(proc, member.pid))


def _namespace(proc: Path, pid: int) -> str:
    """Processes of one container have the same mounts, hundreds of lines on a cluster."""
    try:
        return os.readlink(f"{proc}/{pid}/ns/mnt")  # noqa: PTH115
    except OSError:
        return str(pid)


def _written(proc: Path, pid: int) -> Iterator[str]:
    """Folders of the files that a process has open for writing."""
    with contextlib.suppress(OSError):
        for fd, path in descriptors(proc, pid, _MOST_DESCRIPTORS):
            if not path.startswith("/") or path.startswith(("/dev/", "/proc/", "/memfd:")):
                continue
            if access(proc, pid, fd) in {os.O_WRONLY, os.O_RDWR}:
                yield os.path.dirname(path)  # noqa: PTH120


def _ask(proc: Path, pid: int, path: str, mount: Mount) -> Disk:
    shown, kind = printable(path, 300), printable(mount.kind, 40)
    # Through the process's own root, which a container's differs from ours in.
    inside = f"{proc}/{pid}/root{mount.point}"
    try:
        found = within(_AT_MOST_S, lambda: os.statvfs(inside))
    except TimeoutError:
        return Disk(shown, kind, error=f"no answer within {_AT_MOST_S:.0f} s")
    except (OSError, ValueError) as error:
        return Disk(shown, kind, error=str(getattr(error, "strerror", "") or error))
    return Disk(
        path=shown,
        kind=kind,
        total_bytes=found.f_blocks * found.f_frsize,
        free_bytes=found.f_bavail * found.f_frsize,
        free_inodes=found.f_favail if found.f_files else -1,
    )
