"""What recorders wrote of their processes into run directories: which process is which rank.

`/proc/PID/environ` is not always there to say it: setproctitle(3) writes a title over it, Ray gives
its actors titles, and a job may start its ranks with an empty environment.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from grpo_doctor_probes.discover.scan import Process
from grpo_doctor_probes.procs.bounded import unless_blocked
from grpo_doctor_probes.record.rundir import RANKS, RUN_DIR_VARIABLE

_FILES_WITHIN_S = 1.0
_LIMIT_BYTES = 1 << 20
_VARIABLES = {"rank": "RANK", "world_size": "WORLD_SIZE", "local_rank": "LOCAL_RANK"}


@dataclass(frozen=True, slots=True)
class Written:
    """By pid.

    Attributes:
        ranks: of processes whose own environment names the run directory that says so.
        environments: variables of processes without any, that a process above them has a run
            directory for.
    """

    ranks: Mapping[int, int]
    environments: Mapping[int, Mapping[str, str]]


def read_written(proc: Path, processes: Mapping[int, Process]) -> Written:
    """Read the run directories that environments of processes name."""
    own = {
        pid: folder
        for pid, process in processes.items()
        if (folder := process.environment.get(RUN_DIR_VARIABLE))
    }
    above = {
        pid: folder
        for pid, process in processes.items()
        if process.python and not process.environment and (folder := _above(pid, processes, own))
    }
    ranks: dict[int, int] = {}
    environments: dict[int, Mapping[str, str]] = {}
    for folder in dict.fromkeys(own.values()):
        lowest = min(pid for pid, run_dir in own.items() if run_dir == folder)
        path = Path(f"{proc}/{lowest}/root") / folder.lstrip("/") / RANKS
        nothing: dict[int, Mapping[str, str]] = {}
        written = unless_blocked(_FILES_WITHIN_S, partial(_read_all, path), nothing)
        for pid, variables in written.items():
            if own.get(pid) == folder:
                ranks[pid] = int(variables["RANK"])
            elif above.get(pid) == folder:
                environments[pid] = {**variables, RUN_DIR_VARIABLE: folder}
    return Written(ranks, environments)


def _above(pid: int, processes: Mapping[int, Process], own: Mapping[int, str]) -> str | None:
    """Return the run directory of the nearest process above that has one."""
    visited = {pid}
    while (parent := processes[pid].parent) in processes and parent not in visited:
        if parent in own:
            return own[parent]
        visited.add(parent)
        pid = parent
    return None


def _read_all(folder: Path) -> dict[int, Mapping[str, str]]:
    written: dict[int, Mapping[str, str]] = {}
    with contextlib.suppress(OSError):
        for path in sorted(folder.glob("*.json")):
            facts = rank_facts(path) if path.stem.isdecimal() else None
            if facts is not None and facts["host"] == os.uname().nodename:
                facts["rank"] = int(path.stem)
                variables = ((name, facts.get(key)) for key, name in _VARIABLES.items())
                written[facts["pid"]] = {n: str(v) for n, v in variables if isinstance(v, int)}
    return written


def rank_facts(path: Path) -> dict[str, Any] | None:
    """Return what a recorder wrote of its process, with its `host` and `pid`; None where that is
    half written, or not a recorder's."""
    try:
        if path.stat().st_size > _LIMIT_BYTES:
            return None
        content = json.loads(path.read_bytes())
        known = isinstance(content["host"], str) and isinstance(content["pid"], int)
        return dict(content) if known else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
