"""Which process is which rank, as the recorder wrote it: `<run>/ranks/<rank>.json`."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from grpo_doctor_probes.discover.patience import unless_blocked
from grpo_doctor_probes.discover.scan import Process
from grpo_doctor_probes.rundir import RANKS, RUN_DIR_VARIABLE

_PATIENCE_S = 1.0
_LIMIT_BYTES = 1 << 20


def declared_ranks(proc: Path, processes: Mapping[int, Process]) -> dict[int, int]:
    """Ranks by pid. A process counts only in the run directory that its own environment names."""
    folders: dict[str, set[int]] = {}
    for pid, process in processes.items():
        if folder := process.environment.get(RUN_DIR_VARIABLE):
            folders.setdefault(folder, set()).add(pid)
    found: dict[int, int] = {}
    for folder, pids in folders.items():
        path = Path(f"{proc}/{min(pids)}/root") / folder.lstrip("/") / RANKS
        nothing: dict[int, int] = {}
        read = unless_blocked(_PATIENCE_S, partial(_read_all, path), nothing)
        found |= {pid: rank for pid, rank in read.items() if pid in pids}
    return found


def _read_all(folder: Path) -> dict[int, int]:
    found: dict[int, int] = {}
    with contextlib.suppress(OSError):
        for path in sorted(folder.glob("*.json")):
            if path.stem.isdecimal() and (pid := _pid_in(path)) is not None:
                found[pid] = int(path.stem)
    return found


def _pid_in(path: Path) -> int | None:
    try:
        if path.stat().st_size > _LIMIT_BYTES:
            return None
        content = json.loads(path.read_bytes())
        return int(content["pid"]) if content["host"] == os.uname().nodename else None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # half written, or not the recorder's
