"""What the control groups of a process allow it, and whether they have frozen it.

Formats: cgroup-v2.rst; cgroup-v1/freezer-subsystem.rst, memory.rst; sched-bwc.rst. A limit of any
group above counts, so each is looked at up to the top.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from grpo_doctor_probes.evidence import Job, Limits
from grpo_doctor_probes.procs.cgroups import (
    MOUNT,
    VERSION_2,
    control_groups,
    field_in,
    memory_limits,
    number_in,
    oom_files,
)
from grpo_doctor_probes.procs.procfs import content, read
from grpo_doctor_probes.procs.procstat import read_stat

_CORES = re.compile(rb"^Cpus_allowed_list:\s*(\S+)", re.MULTILINE)


def limits(job: Job) -> tuple[Limits, ...]:
    """Return the limits of each process of the job that is still there."""
    answers = (limits_of(member.pid) for member in job.members)
    return tuple(answer for answer in answers if answer is not None)


def limits_of(pid: int, proc: Path = Path("/proc"), mount: Path = MOUNT) -> Limits | None:
    """Return the limits of one process; None when it has gone."""
    try:
        stat = read_stat(proc / str(pid))
        status = read(proc / str(pid) / "status")
    except (OSError, ValueError):
        return None
    groups = control_groups(pid, proc, mount)
    freezer = _freezer(groups)
    tightest = min(memory_limits(groups), key=lambda m: m.limit_bytes - m.used_bytes, default=None)
    cores = _CORES.search(status)
    return Limits(
        pid=pid,
        frozen=bool(freezer),
        freezer=freezer,
        quota_cores=_quota_cores(groups),
        throttled_ns=_throttled_ns(groups),
        memory_limit_bytes=tightest.limit_bytes if tightest else None,
        memory_used_bytes=tightest.used_bytes if tightest else None,
        oom_kills=max((field_in(file, "oom_kill") for file in oom_files(groups)), default=0),
        cores=core_list(cores[1].decode()) if cores else (),
        nice=stat.nice,
    )


def frozen(pid: int, proc: Path = Path("/proc"), mount: Path = MOUNT) -> str:
    """Return the file that thaws a process that is frozen; empty for one that is not."""
    return _freezer(control_groups(pid, proc, mount))


def core_list(text: str) -> tuple[int, ...]:
    """`0-3,8` as numbers."""
    cores: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            cores += range(int(first), int(last or first) + 1)
    return tuple(cores)


def _freezer(groups: Mapping[str, Sequence[Path]]) -> str:
    """Return the highest frozen group: a lower one stays frozen until that one is thawed."""
    file = ""
    for folder in groups.get("freezer", ()):
        if number_in(folder / "freezer.self_freezing") == 1:
            file = str(folder / "freezer.state")
    for folder in groups.get(VERSION_2, ()):
        if number_in(folder / "cgroup.freeze") == 1:
            file = str(folder / "cgroup.freeze")
    return file


def _quota_cores(groups: Mapping[str, Sequence[Path]]) -> float | None:
    v2 = [
        content(folder / "cpu.max").decode("ascii", "replace").split()
        for folder in groups.get(VERSION_2, ())
    ]
    v1 = [
        [str(number_in(folder / f"cpu.cfs_{name}_us")) for name in ("quota", "period")]
        for folder in groups.get("cpu", ())
    ]
    pairs = [pair for pair in (*v2, *v1) if len(pair) == 2 and all(map(str.isdigit, pair))]
    return min((int(quota) / int(period) for quota, period in pairs if int(period)), default=None)


def _throttled_ns(groups: Mapping[str, Sequence[Path]]) -> int:
    v2 = [
        field_in(folder / "cpu.stat", "throttled_usec") * 1000
        for folder in groups.get(VERSION_2, ())
    ]
    v1 = [field_in(folder / "cpu.stat", "throttled_time") for folder in groups.get("cpu", ())]
    return max([*v2, *v1], default=0)
