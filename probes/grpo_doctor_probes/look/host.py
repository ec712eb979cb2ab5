"""The machine: its cores, free space of the disks that the job uses (asked so that a dead one can't
hold us), and what the kernel said in the last hour.
"""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_probes.evidence import Disk, HostFacts, Job
from grpo_doctor_probes.look.hostview import written_files
from grpo_doctor_probes.procs import kmsg
from grpo_doctor_probes.procs.bounded import within
from grpo_doctor_probes.procs.printable import printable
from grpo_doctor_probes.procs.procfs import link, read

_ESCAPED = re.compile(rb"\\([0-7]{3})")
LAST_S = 3600.0
_MOST_MESSAGES = 50
_LONGEST_MESSAGE = 400
_CONCERNS = re.compile(
    r"out of memory|oom-kill|oom_reaper|killed process|nvrm|\bxid\b|nvswitch|nvlink"
    r"|not responding|hung_task|nvme.*timeout|blocked for more than|(?:soft|hard) lockup|rcu.*stall"
    r"|\bmce\b|machine check|hardware error|edac|segfault|general protection|traps:|i/o error"
    r"|remounting filesystem read-only|no space left|ext4-fs error|xfs.*(?:error|shutdown)"
    r"|mlx5.*(?:error|down)|link is down|link down|nfs:|lustreerror|ceph",
    re.IGNORECASE,
)
HIDDEN = (
    "kernel messages are hidden from this user, so an OOM kill or a GPU error would not be seen: "
    "sudo dmesg -T | tail -50, or sudo sysctl kernel.dmesg_restrict=0"
)
_DISKS_AT_MOST_S = 1.0
_MOST_DISKS = 32
_MOST_DESCRIPTORS = 512  # of one process
_ALWAYS = ("/tmp", "/dev/shm")  # noqa: S108 - they fill up, that is why they are asked
_NO_DISKS = frozenset(
    {"proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue", "devtmpfs", "securityfs", "bpf"}
)


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system: where, of which kind (`nfs4`, `ext4`, `fuse.s3fs`), from where."""

    point: str
    kind: str
    source: str


def on_mount(mounts: list[Mount], path: str) -> Mount | None:
    """Return the one of `mounts` that `path` is on."""
    above = [m for m in mounts if path == m.point or path.startswith(m.point.rstrip("/") + "/")]
    # Of two on one point the later one hides the earlier.
    return max(reversed(above), key=lambda mount: len(mount.point), default=None)


def mounts(proc: Path, pid: int) -> list[Mount]:
    """Return all mounts that process `pid` sees; none when it has gone."""
    try:
        return parse_mounts(read(f"{proc}/{pid}/mountinfo", 16 << 20))
    except OSError:
        return []


def parse_mounts(mountinfo: bytes) -> list[Mount]:
    """From /proc/PID/mountinfo; format in proc_pid_mountinfo(5)."""
    parsed = []
    for line in mountinfo.splitlines():
        words, kind_source = (half.split() for half in line.partition(b" - ")[::2])
        if len(words) >= 5 and len(kind_source) >= 2:
            parsed.append(Mount(_text(words[4]), _text(kind_source[0]), _text(kind_source[1])))
    return parsed


def _text(escaped: bytes) -> str:
    plain = _ESCAPED.sub(lambda match: bytes([int(match[1], 8) & 0xFF]), escaped)
    return plain.decode("utf-8", "surrogateescape")


def messages(path: Path = kmsg.KMSG) -> tuple[tuple[tuple[float, str], ...], str]:
    """`(age in s, text)` of the latest messages, oldest first, and why there are none."""
    try:
        records = list(kmsg.records(path))
    except PermissionError:
        return (), HIDDEN
    except OSError as error:  # containers may have another device under this name
        return (), f"kernel messages cannot be read ({error.strerror}); on the host: dmesg -T"
    return select(records, time.monotonic()), ""


def select(records: Iterable[bytes], now_s: float) -> tuple[tuple[float, str], ...]:
    """Return those of the last hour that concern a job. `now_s` is on the log's clock."""
    messages = []
    for record in records:
        parsed = kmsg.parse_record(record)
        if parsed is None:
            continue
        at_s, text = parsed[0], printable(parsed[1], _LONGEST_MESSAGE)
        age_s = max(0.0, now_s - at_s)
        if age_s <= LAST_S and _CONCERNS.search(text):
            messages.append((age_s, text))
    return tuple(messages[-_MOST_MESSAGES:])


def disks(job: Job, proc: Path) -> tuple[Disk, ...]:
    """Each file system once: of working directories, of files open for writing, /tmp, /dev/shm."""
    questions_by_disk: dict[tuple[str, str], tuple[int, str, Mount]] = {}
    for pid, visible, path in _paths(job, proc):
        mount = on_mount(visible, path)
        if mount is not None and mount.kind not in _NO_DISKS:
            questions_by_disk.setdefault((mount.point, mount.source), (pid, path, mount))
    questions = list(questions_by_disk.values())[:_MOST_DISKS]
    if not questions:
        return ()
    # All at once: several mounts of one dead server must not add up.
    with ThreadPoolExecutor(len(questions), thread_name_prefix="disks") as pool:
        return tuple(pool.map(lambda question: _ask(proc, *question), questions))


def _paths(job: Job, proc: Path) -> Iterator[tuple[int, list[Mount], str]]:
    """Paths that matter, with the mounts as their process sees them."""
    by_namespace: dict[str, list[Mount]] = {}
    for index, member in enumerate(job.members):
        pid = member.pid
        # Processes of one container have the same mounts, hundreds of lines on a cluster.
        namespace = link(f"{proc}/{pid}/ns/mnt") or str(pid)
        if namespace not in by_namespace:
            by_namespace[namespace] = mounts(proc, pid)
        paths = list(_ALWAYS) if index == 0 else []
        if cwd := link(f"{proc}/{pid}/cwd"):
            written = written_files(proc, pid, _MOST_DESCRIPTORS)
            paths += [cwd, *(os.path.dirname(path) for _, path in written)]  # noqa: PTH120
        yield from ((pid, by_namespace[namespace], path) for path in paths)


def _ask(proc: Path, pid: int, path: str, mount: Mount) -> Disk:
    shown, kind = printable(path, 300), printable(mount.kind, 40)
    # Through the process's own root, which a container's differs from ours in.
    inside = f"{proc}/{pid}/root{mount.point}"
    try:
        sizes = within(_DISKS_AT_MOST_S, lambda: os.statvfs(inside))
    except TimeoutError:
        return Disk(shown, kind, error=f"no answer within {_DISKS_AT_MOST_S:.0f} s")
    except (OSError, ValueError) as error:
        return Disk(shown, kind, error=str(getattr(error, "strerror", "") or error))
    return Disk(
        path=shown,
        kind=kind,
        total_bytes=sizes.f_blocks * sizes.f_frsize,
        free_bytes=sizes.f_bavail * sizes.f_frsize,
        free_inodes=sizes.f_favail if sizes.f_files else -1,
    )


def host(job: Job, proc: Path = Path("/proc")) -> HostFacts:
    """Facts of this host; of disks only those that the job's processes use."""
    kernel, kernel_problem = messages()
    return HostFacts(
        name=printable(platform.node(), 100),
        cores=os.cpu_count() or 1,
        disks=disks(job, proc),
        kernel=kernel,
        kernel_problem=kernel_problem,
    )
