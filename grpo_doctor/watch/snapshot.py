"""What a run does now: its last steps, where its ranks are, its GPUs, its verdicts.

A snapshot reads the headers of the span files, the last segments of one of them, and what was
appended to the sample files, so its cost does not grow with the length of the run.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from grpo_doctor.document.facts import hang_entries, hang_pages
from grpo_doctor.phases import phase_of
from grpo_doctor.trace.facts import read_facts
from grpo_doctor.trace.intervals import innermost
from grpo_doctor.trace.spanfile import last_records
from grpo_doctor_probes.procs.live import Header, OpenSpan, name_of, read_header
from grpo_doctor_probes.record import layout
from grpo_doctor_probes.record.rundir import HOSTS, NODES, RANKS, RUN_JSON
from grpo_doctor_reports.schema.watch import GpuNow, RankNow, Snapshot, StepNow, VerdictNow

_STEPS = 60
_MOST_RANKS = 16  # of those that are longest where they are
_MOST_GPUS = 64
_MOST_VERDICTS = 3
_FORKED = "worker of rank"
_UTIL, _MEMORY = "gpu.util", "gpu.memory_used"
_LONGEST_ROW_BYTES = 1 << 20


@dataclass
class _Samples:
    """One growing sample file: the last value of each track."""

    path: Path
    offset: int = 0
    tracks: dict[str, tuple[str, str]] = field(default_factory=dict)  # number: name, GPU
    gpus: dict[str, dict[str, Any]] = field(default_factory=dict)
    values: dict[tuple[str, str], float | None] = field(default_factory=dict)

    def read(self) -> None:
        """Read the whole lines that are new."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                for line in file:
                    if not line.endswith(b"\n") or len(line) > _LONGEST_ROW_BYTES:
                        break
                    self.offset += len(line)
                    self._take(line)
        except OSError:
            return

    def _take(self, line: bytes) -> None:
        try:
            row = json.loads(line)
        except ValueError:
            return
        if not isinstance(row, dict):
            return
        if "format" in row:  # another recording in the same file begins
            self.tracks, self.values = {}, {}
        elif "track" in row:
            self.tracks[str(row["track"])] = (str(row.get("name")), str(row.get("gpu", "")))
        elif "memory_total_bytes" in row and row.get("visible", True):
            self.gpus[str(row.get("gpu"))] = row
        for number, value in row["v"].items() if isinstance(row.get("v"), dict) else ():
            if number in self.tracks and (value is None or isinstance(value, int | float)):
                self.values[self.tracks[number]] = value

    def rows(self) -> Iterator[GpuNow]:
        """Return the GPUs of this host."""
        for uuid, row in self.gpus.items():
            total, index = row.get("memory_total_bytes"), row.get("index")
            yield GpuNow(
                host=self.path.name.partition(".samples")[0],
                index=index if isinstance(index, int) else 0,
                name=str(row.get("name", "GPU")),
                busy_pct=self.values.get((_UTIL, uuid)),
                memory_bytes=self.values.get((_MEMORY, uuid)),
                memory_total_bytes=total if isinstance(total, int) else 0,
            )


class Watched:
    """A run directory that is looked at again and again."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._samples: dict[Path, _Samples] = {}
        self._facts: tuple[int, dict[str, Any]] = (-1, {})
        self._verdicts: tuple[list[Path], list[VerdictNow]] = ([], [])

    def look(self) -> Snapshot:
        """Return what the run does now. A directory that has vanished is a state, no error."""
        if not self.run_dir.is_dir():
            return Snapshot(run=self.run_dir.name, state="gone", now_unix_s=time.time())
        folders = [self.run_dir, *sorted((self.run_dir / NODES).glob("*"))]
        files = [path for each in folders for path in sorted((each / RANKS).glob("*.spans"))]
        headers = {path: header for path in files if (header := _header(path)) is not None}
        ranks = [_rank(path, header) for path, header in headers.items()]
        living = [rank for rank in ranks if rank.phase]
        ended = all(header.closed_ns for header in headers.values())
        facts = self._run_facts()
        carriers = [path for path, header in headers.items() if header.step is not None]
        return Snapshot(
            run=self.run_dir.resolve().name,
            command=facts.get("command", []),
            framework=facts.get("framework", "unknown"),
            state=facts.get("state") or ("ended" if ended else "running"),
            exit_code=facts.get("exit_code"),
            duration_s=facts.get("duration_s") or _since(facts.get("started_unix_s")),
            now_unix_s=time.time(),
            steps=_steps(carriers[0], headers[carriers[0]]) if carriers else [],
            ranks=len({(rank.rank, rank.role) for rank in ranks if rank.role != _FORKED}),
            where=dict(Counter(rank.phase for rank in living).most_common()),
            longest=sorted(living, key=lambda rank: -rank.since_s)[:_MOST_RANKS],
            gpus=self._gpus(folders),
            verdicts=self._newest_verdicts(),
        )

    def _newest_verdicts(self) -> list[VerdictNow]:
        """Read the verdicts, of up to megabytes each, only when there is another one."""
        pages = hang_pages(self.run_dir)
        if pages != self._verdicts[0]:
            entries = hang_entries(self.run_dir)[-_MOST_VERDICTS:]
            rows = [VerdictNow(e.state, e.headline, e.page, e.taken_unix_ns) for e in entries]
            self._verdicts = (pages, rows)
        return self._verdicts[1]

    def _run_facts(self) -> dict[str, Any]:
        """Read `run.json` again where it has changed: it names the command, at the end the exit."""
        try:
            changed_ns = (self.run_dir / RUN_JSON).stat().st_mtime_ns
        except OSError:
            return {}
        if changed_ns != self._facts[0] or self._facts[1].get("state") == "running":
            found = read_facts(self.run_dir)
            run = found.run
            took_s = None
            if found.end_ns is not None and found.start_ns is not None:
                took_s = (found.end_ns - found.start_ns) / 1e9
            facts = {
                "command": list(run.command),
                "framework": run.framework,
                "state": run.exit.state,
                "exit_code": run.exit.code,
                "started_unix_s": run.started_unix_ns / 1e9 if run.started_unix_ns else None,
                "duration_s": took_s,
            }
            self._facts = (changed_ns, facts)
        return self._facts[1]

    def _gpus(self, folders: list[Path]) -> list[GpuNow]:
        for folder in folders:
            for path in sorted((folder / HOSTS).glob("*.samples.jsonl")):
                self._samples.setdefault(path, _Samples(path)).read()
        rows = (row for samples in self._samples.values() for row in samples.rows())
        return sorted(rows, key=lambda row: (row.host, row.index))[:_MOST_GPUS]


def _since(started_unix_s: float | None) -> float | None:
    return time.time() - started_unix_s if started_unix_s else None


def _header(path: Path) -> Header | None:
    try:
        return read_header(path)
    except (OSError, ValueError):  # just made, cut off, or vanished: the report says which
        return None


def _rank(path: Path, header: Header) -> RankNow:
    """Return where a process is; it has no phase once it has ended."""
    role, _, number = path.name.removesuffix(".spans").rpartition("-")
    if "." in number:  # `00003.4711`: process 4711, which rank 3 forked
        role = _FORKED
    span = _innermost(header)
    between = "between phases" if header.step is not None else ""
    since_s = 0.0
    if span is not None:
        begun_ns = header.start_unix_ns + span.start_ns - header.start_monotonic_ns
        since_s = max(0.0, time.time() - begun_ns / 1e9)
    return RankNow(
        rank=header.rank,
        role=role,
        step=header.step,
        phase="" if header.closed_ns else span.name if span else between,
        since_s=round(since_s, 1),
    )


def _innermost(header: Header) -> OpenSpan | None:
    """Return the last span that the thread of the steps has opened, but for the step itself."""
    carrying = next((s.thread for s in header.open_spans if s.kind == layout.STEP), None)
    spans = [
        span
        for span in header.open_spans
        if span.kind != layout.STEP and carrying in (None, span.thread)
    ]
    return max(spans, key=lambda span: span.start_ns, default=None)


def _steps(path: Path, header: Header) -> list[StepNow]:
    """Return the last steps that have ended, with the seconds of each phase on this rank."""
    try:
        records = last_records(path)
    except OSError:
        return []
    records = records[(records["name"] > 0) & (records["end_ns"] >= records["start_ns"])]
    steps = records[records["kind"] == layout.STEP]
    steps = steps[np.argsort(steps["start_ns"])][-_STEPS:]
    spans = records[records["kind"] == layout.SPAN]
    spans = spans[np.lexsort((spans["depth"], -spans["end_ns"], spans["start_ns"]))]
    words = (name_of(header.names, int(name)) for name in spans["name"])
    phases = np.array([phase_of(w.partition(layout.ARGS_SEPARATOR)[0]) or "other" for w in words])
    shown = (phases != "other") | (spans["depth"] == 1)
    spans, phases = spans[shown], phases[shown]
    rows = []
    for step in steps:
        within = np.flatnonzero(
            (spans["start_ns"] >= step["start_ns"])
            & (spans["end_ns"] <= step["end_ns"])
            & (spans["thread"] == step["thread"])
        )
        # As in the report: TRL's training step has the rollout inside.
        pieces, owner = innermost(spans["start_ns"][within], spans["end_ns"][within])
        seconds: dict[str, float] = {}
        for phase, took_ns in zip(phases[within][owner], pieces.end_ns - pieces.start_ns):
            seconds[str(phase)] = seconds.get(str(phase), 0.0) + float(took_ns) / 1e9
        took_s = float(step["end_ns"] - step["start_ns"]) / 1e9
        value = float(step["value"])
        rows.append(StepNow(int(value) if value >= 0 else 0, took_s, seconds))
    return rows


def as_json(snapshot: Snapshot) -> bytes:
    """Return the snapshot for the page and for `--json`."""
    return msgspec.json.encode(snapshot)
