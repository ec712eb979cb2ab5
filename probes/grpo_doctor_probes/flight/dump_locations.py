"""Where the ranks of a job write dumps by themselves: their environment says, or torch's defaults.

Many users do not know that a dump exists already: torch writes one when a collective times out.
"""

from __future__ import annotations

import contextlib
import os
import time
from functools import partial
from pathlib import Path

from grpo_doctor_probes.discover.scan import Process
from grpo_doctor_probes.evidence import Job, Member
from grpo_doctor_probes.procs.bounded import within
from grpo_doctor_probes.procs.procfs import read, variables
from grpo_doctor_probes.procs.procstat import CLOCK_TICKS_PER_S
from grpo_doctor_probes.record.rundir import FLIGHT

PREFIX_VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_NAMES = ("nccl_trace_rank_", "comm_lib_trace_rank_")
_MAX_FILES = 4096
_ENVIRON_BYTES = 4 << 20
_AT_MOST_S, _ALL_AT_MOST_S = 1.0, 3.0


def known_dump_files(job: Job, proc: Path = Path("/proc")) -> tuple[Path, ...]:
    """Dump files that ranks of `job` wrote since they started. Never raises OSError.

    A folder on a file system that does not answer within a second, as a dead NFS home, has none.
    """
    since_by_prefix: dict[Path, float] = {}
    for member in job.ranks():
        since = started_unix_s(member)
        for prefix in dump_prefixes(member, proc):
            since_by_prefix[prefix] = min(since, since_by_prefix.get(prefix, since))
    if job.run_dir:
        since_by_prefix[Path(job.run_dir) / FLIGHT] = 0.0
    files: dict[Path, None] = {}
    deadline = time.monotonic() + _ALL_AT_MOST_S
    for prefix, since in since_by_prefix.items():
        limit_s = min(_AT_MOST_S, deadline - time.monotonic())
        with contextlib.suppress(TimeoutError):
            files.update(dict.fromkeys(within(limit_s, partial(_newer_files, prefix, since))))
    return tuple(files)[:_MAX_FILES]


def environment(member: Member, proc: Path = Path("/proc")) -> dict[str, str]:
    """Return the variables that a process was started with, {} where they may not be read.

    Nor are they where `readable` is False: who reads them waits for the memory lock of the process,
    and discovery has seen a hanging thread hold it.
    """
    if not member.readable:
        return {}
    try:
        return variables(read(proc / str(member.pid) / "environ", _ENVIRON_BYTES))
    except OSError:
        return {}


def dump_prefixes(member: Member, proc: Path = Path("/proc")) -> tuple[Path, ...]:
    """Return what a rank's dump file is called, up to its rank, as seen from here."""
    variables = environment(member, proc)
    prefixes = [variables[name] for name in PREFIX_VARIABLES if variables.get(name)]
    # Torch's own places: /tmp until about 2.5, then its cache folder.
    cache = variables.get("XDG_CACHE_HOME") or variables.get("HOME", "/root") + "/.cache"
    places = [f"{folder}/{name}" for name in _NAMES for folder in ("/tmp", f"{cache}/torch")]  # noqa: S108
    return tuple(seen_from_here(member.pid, prefix, proc) for prefix in prefixes or places)


def seen_from_here(pid: int, path: str, proc: Path = Path("/proc")) -> Path:
    """Return a path of process `pid` as ours: relative to its folder, and within its container."""
    base = proc / str(pid)
    if not path.startswith("/"):
        return base / "cwd" / path
    with contextlib.suppress(OSError):
        theirs, ours = (base / "ns" / "mnt").readlink(), Path("/proc/self/ns/mnt").readlink()
        if theirs != ours or str((base / "root").readlink()) != "/":
            return base / "root" / path.lstrip("/")
    return Path(path)


def started_unix_s(process: Process | Member) -> float:
    """When the process started, in Unix seconds, less a second as clocks may differ."""
    if not process.started_ticks:
        return 0.0
    booted_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return booted_s + process.started_ticks / CLOCK_TICKS_PER_S - 1.0


def _newer_files(prefix: Path, since: float) -> list[Path]:
    """Regular files whose path begins with `prefix`, last written after `since`."""
    files: list[Path] = []
    # What is not there, or not ours to read: then no dump is known there.
    with contextlib.suppress(OSError):
        folder, start = (prefix, "") if prefix.is_dir() else (prefix.parent, prefix.name)
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda e: e.name):
                ours = entry.name.startswith(start) and entry.is_file()
                if ours and entry.stat().st_mtime >= since:
                    files.append(Path(entry.path))
    return files
