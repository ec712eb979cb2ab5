"""What the control groups of a process allow it, and whether they have frozen it.

Formats: cgroup-v2.rst; cgroup-v1/freezer-subsystem.rst, memory.rst; sched-bwc.rst. A limit of any
group above counts, so each is looked at up to the top.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_probes.evidence import Job, Limits
from grpo_doctor_probes.look.descriptors import content
from grpo_doctor_probes.procs.cgroups import MOUNT, NO_LIMIT_BYTES, VERSION_2, control_groups
from grpo_doctor_probes.procs.procfs import read
from grpo_doctor_probes.procs.procstat import read_stat

_CORES = re.compile(rb"^Cpus_allowed_list:\s*(\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Level:
    """A control group in one hierarchy. Missing files read as empty."""

    folder: Path

    def text(self, name: str) -> str:
        return content(self.folder / name).decode("ascii", "replace").strip()

    def number(self, name: str) -> int | None:
        text = self.text(name)
        return int(text) if text.lstrip("-").isdigit() else None

    def field(self, name: str, key: str) -> int:
        """Return a line `key number` of a file."""
        return field_of(self.folder / name, key)


def field_of(file: Path, key: str) -> int:
    """Return the number in a line `key number` of a file; 0 without one."""
    for line in content(file).decode("ascii", "replace").splitlines():
        word, _, value = line.partition(" ")
        if word == key and value.strip().isdigit():
            return int(value)
    return 0


def limits(job: Job, proc: Path = Path("/proc"), mount: Path = MOUNT) -> tuple[Limits, ...]:
    """Return the limits of each process of the job that is still there."""
    answers = (limits_of(member.pid, proc, mount) for member in job.members)
    return tuple(answer for answer in answers if answer is not None)


def limits_of(pid: int, proc: Path = Path("/proc"), mount: Path = MOUNT) -> Limits | None:
    """Return the limits of one process; None when it has gone."""
    try:
        stat = read_stat(proc / str(pid))
        status = read(proc / str(pid) / "status")
    except (OSError, ValueError):
        return None
    levels = _levels(pid, proc, mount)
    freezer = _freezer(levels)
    limit_bytes, used_bytes = _memory(levels)
    cores = _CORES.search(status)
    return Limits(
        pid=pid,
        frozen=bool(freezer),
        freezer=freezer,
        quota_cores=_quota_cores(levels),
        throttled_ns=_throttled_ns(levels),
        memory_limit_bytes=limit_bytes,
        memory_used_bytes=used_bytes,
        oom_kills=_oom_kills(levels),
        cores=core_list(cores[1].decode()) if cores else (),
        nice=stat.nice,
    )


def frozen(pid: int, proc: Path = Path("/proc"), mount: Path = MOUNT) -> str:
    """Return the file that thaws a process that is frozen; empty for one that is not."""
    return _freezer(_levels(pid, proc, mount))


def core_list(text: str) -> tuple[int, ...]:
    """`0-3,8` as numbers."""
    cores: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            cores += range(int(first), int(last or first) + 1)
    return tuple(cores)


def _levels(pid: int, proc: Path, mount: Path) -> dict[str, list[_Level]]:
    """Return the groups of the process and all above them, lowest first, by controller."""
    groups = control_groups(pid, proc, mount)
    return {name: [_Level(folder) for folder in folders] for name, folders in groups.items()}


def _freezer(levels: dict[str, list[_Level]]) -> str:
    """Return the highest frozen group: a lower one stays frozen until that one is thawed."""
    file = ""
    for level in levels.get("freezer", []):
        if level.number("freezer.self_freezing") == 1:
            file = str(level.folder / "freezer.state")
    for level in levels.get(VERSION_2, []):
        if level.number("cgroup.freeze") == 1:
            file = str(level.folder / "cgroup.freeze")
    return file


def _quota_cores(levels: dict[str, list[_Level]]) -> float | None:
    quotas = []
    for level in levels.get(VERSION_2, []):
        quota, _, period = level.text("cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit():
            quotas.append(int(quota) / int(period))
    for level in levels.get("cpu", []):
        v1_quota, v1_period = level.number("cpu.cfs_quota_us"), level.number("cpu.cfs_period_us")
        if v1_quota and v1_period and v1_quota > 0:
            quotas.append(v1_quota / v1_period)
    return min(quotas, default=None)


def _throttled_ns(levels: dict[str, list[_Level]]) -> int:
    v2 = [level.field("cpu.stat", "throttled_usec") * 1000 for level in levels.get(VERSION_2, [])]
    v1 = [level.field("cpu.stat", "throttled_time") for level in levels.get("cpu", [])]
    return max([*v2, *v1], default=0)


def _memory(levels: dict[str, list[_Level]]) -> tuple[int | None, int | None]:
    """Limit and use of the level that has the least left."""
    sizes: list[tuple[int, int]] = []
    for limit_name, used_name, controller in (
        ("memory.max", "memory.current", VERSION_2),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory"),
    ):
        for level in levels.get(controller, []):
            limit, used = level.number(limit_name), level.number(used_name)
            if limit is not None and used is not None and limit < NO_LIMIT_BYTES:
                sizes.append((limit, used))
    return min(sizes, key=lambda pair: pair[0] - pair[1], default=(None, None))


def _oom_kills(levels: dict[str, list[_Level]]) -> int:
    """The kernel counts a kill in the group of the victim and in those above, never at the top."""
    v2 = [level.field("memory.events", "oom_kill") for level in levels.get(VERSION_2, [])]
    v1 = [level.field("memory.oom_control", "oom_kill") for level in levels.get("memory", [])]
    return max([*v2, *v1], default=0)
