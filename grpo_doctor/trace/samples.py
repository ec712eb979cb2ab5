"""Reads the samplers' files into series: `hosts/<host>.samples.jsonl`.

The format is described where it is written, in `grpo_doctor_probes.samplers.file`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from grpo_doctor.trace.jsonfile import read_lines
from grpo_doctor.trace.model import Gpu, Series


@dataclass(frozen=True, slots=True)
class Samples:
    """One host's samples. `clock` describes the sampling process's clock as rank files do."""

    host: str
    clock: Mapping[str, Any]
    series: tuple[Series, ...]
    gpus: tuple[Gpu, ...]
    notes: tuple[str, ...]


def read_samples(path: Path) -> Samples:
    """Reads one file; damaged lines are left out and said in `notes`. Never raises."""
    rows, damaged = read_lines(path)
    head: dict[str, Any] = next((row for row in rows if "format" in row), {})
    host = str(head.get("host") or path.name.partition(".samples")[0])
    declared = {str(r["track"]): r for r in rows if "track" in r and "name" in r}
    times: dict[str, list[int]] = {track: [] for track in declared}
    values: dict[str, list[float]] = {track: [] for track in declared}
    last_ns = 0
    for row in rows:
        changed = row.get("v")
        if not isinstance(changed, dict) or not isinstance(row.get("t"), int):
            last_ns = max(last_ns, row["t"] if isinstance(row.get("t"), int) else 0)
            continue
        last_ns = row["t"]
        for track, value in changed.items():
            if track in times:
                times[track].append(last_ns)
                values[track].append(_number(value))
    notes = [str(row["note"]) for row in rows if "note" in row]
    if damaged:
        notes.append(f"{path.name}: {damaged} damaged lines left out")
    series = [
        _series(host, declared[track], times[track], values[track], last_ns) for track in declared
    ]
    return Samples(
        host=host,
        clock={
            "clock_id": head.get("clock_id"),
            "clocks": [{"unix_ns": head.get("unix_ns"), "monotonic_ns": head.get("t_ns")}],
        },
        series=tuple(s for s in series if len(s.t_ns)),
        gpus=tuple(_gpu(host, row) for row in rows if "memory_total_bytes" in row),
        notes=tuple(dict.fromkeys(notes)),
    )


def _series(
    host: str, row: Mapping[str, Any], t_ns: list[int], values: list[float], last_ns: int
) -> Series:
    # Only changes are written; the last value held until the file's last row.
    if t_ns and t_ns[-1] < last_ns and not np.isnan(values[-1]):
        t_ns.append(last_ns)
        values.append(values[-1])
    name = str(row["name"])
    return Series(
        name=name,
        unit=str(row.get("unit", "")),
        scope=name.partition(".")[0],
        host=host,
        t_ns=np.array(t_ns, dtype=np.int64),
        values=np.array(values, dtype=np.float64),
        gpu=row.get("gpu"),
        rank=row.get("rank"),
        pid=row.get("pid"),
    )


def _gpu(host: str, row: Mapping[str, Any]) -> Gpu:
    return Gpu(
        uuid=str(row.get("gpu", "")),
        name=str(row.get("name", "GPU")),
        index=int(row.get("index") or 0),
        host=host,
        memory_total_bytes=int(row.get("memory_total_bytes") or 0),
        mig=row.get("mig"),
        visible=bool(row.get("visible", True)),
        missing=tuple(str(m) for m in row.get("missing") or ()),
    )


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else float("nan")
