"""Reads the samplers' files into series: `hosts/<host>.samples.jsonl`.

The format is described where it is written, in `grpo_doctor_probes.samplers.file`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from grpo_doctor.trace import jsonfile
from grpo_doctor.trace.model import Gpu, Series

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Samples:
    """One recording of one host. `clock` describes the sampler's clock as rank files do."""

    host: str
    clock: Mapping[str, Any]
    series: tuple[Series, ...]
    gpus: tuple[Gpu, ...]
    notes: tuple[str, ...]  # what the samplers said: no NVIDIA driver, for example
    problems: tuple[str, ...] = ()  # what of the file could not be used
    libraries: tuple[str, ...] = ()  # known ones that a job without ranks has loaded
    joined: bool = False  # of a host where only a server runs, which may outlive the run


def read_samples(path: Path) -> list[Samples]:
    """Read one file, which holds a recording for each header in it. Never raises: what is
    damaged is left out and said in the `problems` of the last one."""
    rows, problem = jsonfile.read_lines(path)
    sections: list[list[dict[str, Any]]] = [[]]
    for row in rows:
        if "format" in row and sections[-1]:
            sections.append([])
        sections[-1].append(row)
    name = path.name.partition(".samples")[0]
    recordings = [_section(name, section) for section in sections]
    if problem:
        recordings[-1] = replace(recordings[-1], problems=(*recordings[-1].problems, problem))
    return recordings


def _section(name: str, rows: Sequence[Mapping[str, Any]]) -> Samples:
    head = rows[0] if rows and "format" in rows[0] else {}
    host = str(head.get("host") or name)
    reading = {"unix_ns": head.get("unix_ns"), "monotonic_ns": head.get("t_ns")}
    clock = {"clock_id": head.get("clock_id"), "clocks": [reading]}
    notes = [str(row["note"]) for row in rows if "note" in row]
    libraries = [n for row in rows if "libraries" in row for n in jsonfile.texts(row["libraries"])]
    version = jsonfile.whole(head.get("format")) or FORMAT
    if version > FORMAT:
        newer = (
            f"samples of {host} are of format {version}; this grpo-doctor reads up to {FORMAT}. "
            "Upgrade: git pull in its checkout, then pip install ."
        )
        return Samples(host, clock, (), (), (), (newer,))
    gpus = {g.uuid: g for row in rows if "memory_total_bytes" in row for g in [_gpu(host, row)]}
    return Samples(
        host=host,
        clock=clock,
        series=tuple(_series(host, rows)),
        gpus=tuple(gpus.values()),
        notes=tuple(dict.fromkeys(notes)),
        libraries=tuple(dict.fromkeys(libraries)),
    )


def _series(host: str, rows: Sequence[Mapping[str, Any]]) -> list[Series]:
    declared = {str(r["track"]): r for r in rows if "track" in r and "name" in r}
    times: dict[str, list[int]] = {track: [] for track in declared}
    values: dict[str, list[float]] = {track: [] for track in declared}
    last_ns = 0
    for row in rows:
        t_ns = jsonfile.moment(row.get("t"))
        if t_ns is None or t_ns < last_ns:  # a clock does not go back: damaged
            continue
        last_ns = t_ns
        for track, value in jsonfile.mapping(row.get("v")).items():
            if track in times:
                times[track].append(t_ns)
                values[track].append(jsonfile.number(value))
    for track, t in times.items():
        # Only changes are written; the last value held until the file's last row.
        if t and t[-1] < last_ns and not np.isnan(values[track][-1]):
            t.append(last_ns)
            values[track].append(values[track][-1])
    return [_track(host, declared[track], t, values[track]) for track, t in times.items() if len(t)]


def _track(host: str, row: Mapping[str, Any], t_ns: list[int], values: list[float]) -> Series:
    name = str(row["name"])
    return Series(
        name=name,
        unit=str(row.get("unit", "")),
        scope=name.partition(".")[0],
        host=host,
        t_ns=np.array(t_ns, dtype=np.int64),
        values=np.array(values, dtype=np.float64),
        gpu=jsonfile.text_or_none(row.get("gpu")),
        rank=jsonfile.whole(row.get("rank")),
        pid=jsonfile.whole(row.get("pid")),
    )


def _gpu(host: str, row: Mapping[str, Any]) -> Gpu:
    return Gpu(
        uuid=str(row.get("gpu", "")),
        name=str(row.get("name", "GPU")),
        index=jsonfile.whole(row.get("index")) or 0,
        host=host,
        memory_total_bytes=jsonfile.whole(row.get("memory_total_bytes")) or 0,
        mig=jsonfile.text_or_none(row.get("mig")),
        visible=bool(row.get("visible", True)),
        missing=jsonfile.texts(row.get("missing")),
    )
