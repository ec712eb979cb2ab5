"""Merges a run directory into one `Trace`: every rank on one clock, nothing lost in silence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from grpo_doctor_probes import layout
from grpo_doctor_probes.rundir import (
    HOSTS,
    METRICS_JSONL,
    RANKS,
    RUN_JSON,
    SAMPLES_SUFFIX,
)

from grpo_doctor.errors import TraceError
from grpo_doctor.trace import columns
from grpo_doctor.trace.clocks import Alignment, align
from grpo_doctor.trace.facts import RunFacts, read_facts
from grpo_doctor.trace.jsonfile import read_lines
from grpo_doctor.trace.model import Kind, Loss, Metrics, Process, Series, Spans, Trace
from grpo_doctor.trace.processes import Recording, name_table, read_recordings, translation
from grpo_doctor.trace.samples import Samples, read_samples

PROCESS_PID_STEP = 1000


def merge(folder: Path) -> Trace:
    """Reads a run directory, also of a run that still goes on or was killed.

    Raises:
        TraceError: `folder` is not a run directory, or nothing in it can be read.
    """
    if not (folder / RANKS).is_dir() and not (folder / RUN_JSON).exists():
        raise TraceError(
            f"{folder} is not a run directory: it has neither {RUN_JSON} nor {RANKS}/. "
            "Give the folder that `grpo-doctor run` printed, or a trace.json."
        )
    facts = read_facts(folder)
    recordings, problems = read_recordings(folder / RANKS)
    samples = [read_samples(p) for p in sorted((folder / HOSTS).glob(f"*{SAMPLES_SUFFIX}"))]
    if not recordings and facts.start_ns is None:
        raise TraceError(
            f"{folder}: no rank left a readable recording. "
            + " ".join(problems or ["It is empty."])
        )
    clock = recordings[0].facts if recordings else facts.clock
    timeline = _Timeline(clock, facts, recordings, samples)
    processes = [timeline.process(i, r) for i, r in enumerate(recordings)]
    names, args = name_table(recordings)
    blocks = [timeline.spans(p, r, names, args) for p, r in zip(processes, recordings)]
    if not recordings:
        processes, names, blocks = timeline.launcher_only()
    metrics, damaged = _metrics(folder / METRICS_JSONL)
    if damaged:
        problems.append(f"{METRICS_JSONL}: {damaged} damaged lines left out")
    run = replace(facts.run, duration_ns=timeline.end_ns - timeline.zero_ns)
    return Trace(
        source=str(folder),
        run=run,
        processes=tuple(processes),
        gpus=tuple(g for s in samples for g in s.gpus),
        names=names,
        args=tuple(_decode_args(a) for a in args),
        spans=columns.join(blocks),
        series=timeline.series(),
        metrics=metrics,
        loss=_loss(facts, recordings, [*problems, *facts.problems], samples),
    )


class _Timeline:
    """The common axis: nanoseconds since the earliest thing known of the run."""

    def __init__(
        self,
        clock: Mapping[str, Any],
        facts: RunFacts,
        recordings: Sequence[Recording],
        samples: Sequence[Samples],
    ) -> None:
        self.facts = facts
        self.recordings = recordings
        self.samples = samples
        self.launcher = align(clock, facts.clock)
        self.clocks = [align(clock, r.facts) for r in recordings]
        self.sample_clocks = [align(clock, s.clock) for s in samples]
        begun = [r.first_ns + c.offset_ns for r, c in zip(recordings, self.clocks)]
        ended = [r.last_ns + c.offset_ns for r, c in zip(recordings, self.clocks)]
        if facts.start_ns is not None:
            begun.append(facts.start_ns + self.launcher.offset_ns)
            ended.append((facts.end_ns or facts.start_ns) + self.launcher.offset_ns)
        ended += [
            int(series.t_ns[-1]) + c.offset_ns
            for s, c in zip(samples, self.sample_clocks)
            for series in s.series
        ]
        self.zero_ns = min(begun)
        self.end_ns = max(ended)

    def process(self, index: int, recording: Recording) -> Process:
        clock = self.clocks[index]
        return Process(
            index=index,
            pid=PROCESS_PID_STEP * (index + 1),
            os_pid=recording.content.header.pid,
            host=str(recording.facts.get("host") or "unknown"),
            rank=recording.rank,
            role=recording.role,
            state=recording.state,
            local_rank=recording.facts.get("local_rank"),
            clock_offset_ns=clock.offset_ns,
            clock_error_ns=clock.error_ns,
            clock_method=clock.method,
            start_ns=recording.first_ns + clock.offset_ns - self.zero_ns,
            end_ns=self._last_seen(index, recording) - self.zero_ns,
        )

    def _last_seen(self, index: int, recording: Recording) -> int:
        """When the process ended: its own word, else its last sample, else the run's end."""
        if recording.content.header.closed_ns:
            return recording.last_ns + self.clocks[index].offset_ns
        pid = recording.content.header.pid
        seen = [
            int(series.t_ns[-1]) + clock.offset_ns
            for samples, clock in zip(self.samples, self.sample_clocks)
            for series in samples.series
            if series.pid == pid and series.scope == "rank"
        ]
        latest = recording.last_ns + self.clocks[index].offset_ns
        return max([latest, *seen]) if seen else self.end_ns

    def spans(
        self, process: Process, recording: Recording, names: Sequence[str], args: Sequence[bytes]
    ) -> Spans:
        name_ids, args_ids = translation(
            recording,
            {name: i for i, name in enumerate(names)},
            {details: i for i, details in enumerate(args)},
        )
        shift_ns = process.clock_offset_ns - self.zero_ns
        records = recording.content.records
        records = records[records["kind"] != layout.COUNTER]
        main = recording.main_thread
        closed = columns.spans_from(
            {
                "kind": records["kind"],
                "process": np.full(len(records), process.index),
                "thread": _main_first(records["thread"].astype(np.int32), main),
                "depth": records["depth"],
                "name": name_ids[records["name"]],
                "args": args_ids[records["name"]],
                "start_ns": records["start_ns"] + shift_ns,
                "end_ns": records["end_ns"] + shift_ns,
                "value": records["value"],
                "open": np.zeros(len(records), dtype=np.bool_),
            }
        )
        opened = self._open(process, recording, names, shift_ns)
        joined = columns.join([closed, opened])
        return _init_from_process_start(joined, process, names)

    def _open(
        self, process: Process, recording: Recording, names: Sequence[str], shift_ns: int
    ) -> Spans:
        rows: dict[str, list[Any]] = {name: [] for name in columns.DTYPES}
        main = recording.main_thread
        depths: dict[int, int] = {}
        step = recording.content.header.step
        for span in recording.open_spans:
            name = span.name.partition(layout.ARGS_SEPARATOR)[0]
            depth = depths.get(span.thread, 0)
            depths[span.thread] = depth + 1
            is_step = name == "step"
            row = {
                "kind": Kind.STEP if is_step else Kind.SPAN,
                "process": process.index,
                "thread": int(_main_first(np.array([span.thread]), main)[0]),
                "depth": depth,
                "name": names.index(name),
                "args": -1,
                "start_ns": span.start_ns + shift_ns,
                "end_ns": max(process.end_ns or 0, span.start_ns + shift_ns),
                "value": float(step) if is_step and step is not None else 0.0,
                "open": True,
            }
            for column, value in row.items():
                rows[column].append(value)
        return columns.spans_from(rows)

    def launcher_only(self) -> tuple[list[Process], tuple[str, ...], list[Spans]]:
        """A command that no recorder was in: its whole life is `init`, and nothing is a step."""
        end_ns = self.end_ns - self.zero_ns
        running = self.facts.run.exit.state == "running"
        process = Process(
            index=0,
            pid=PROCESS_PID_STEP,
            os_pid=self.facts.job_pid,
            host=self.facts.host,
            rank=0,
            role="job",
            state="open" if running else "finished",
            start_ns=0,
            end_ns=end_ns,
        )
        row: dict[str, list[Any]] = {name: [0] for name in columns.DTYPES}
        row.update(kind=[Kind.SPAN], args=[-1], end_ns=[end_ns], open=[running])
        return [process], ("init",), [columns.spans_from(row)]

    def series(self) -> tuple[Series, ...]:
        """Samples and the ranks' own counters on the common axis."""
        found = [
            replace(s, t_ns=s.t_ns + clock.offset_ns - self.zero_ns)
            for samples, clock in zip(self.samples, self.sample_clocks)
            for s in samples.series
        ]
        for recording, clock in zip(self.recordings, self.clocks):
            found += _counters(recording, clock, self.zero_ns)
        return tuple(found)


def _counters(recording: Recording, clock: Alignment, zero_ns: int) -> list[Series]:
    records = recording.content.records
    records = records[records["kind"] == layout.COUNTER]
    return [
        Series(
            name=recording.name(int(name_id)).partition(layout.ARGS_SEPARATOR)[0],
            unit="",
            scope="counter",
            host=str(recording.facts.get("host") or "unknown"),
            t_ns=rows["start_ns"] + clock.offset_ns - zero_ns,
            values=rows["value"].astype(np.float64),
            rank=recording.rank,
            pid=recording.content.header.pid,
        )
        for name_id in np.unique(records["name"])
        for rows in [records[records["name"] == name_id]]
    ]


def _main_first(threads: Any, main: int) -> Any:
    """Thread slots renumbered so that the step's thread is 0."""
    if main == 0:
        return threads
    return np.where(threads == main, 0, np.where(threads == 0, main, threads))


def _init_from_process_start(spans: Spans, process: Process, names: Sequence[str]) -> Spans:
    """The first `init` begins with the process: interpreter and recorder imports are part of it."""
    if "init" not in names or process.start_ns is None:
        return spans
    rows = np.flatnonzero((spans.name == names.index("init")) & (spans.depth == 0))
    if len(rows) == 0 or rows[0] != 0:
        return spans
    start_ns = spans.start_ns.copy()
    start_ns[0] = process.start_ns
    return replace(spans, start_ns=start_ns)


def _metrics(path: Path) -> tuple[Metrics, int]:
    rows, damaged = read_lines(path)
    by_step: dict[int, dict[str, float]] = {}
    for row in rows:
        step, values = row.get("step"), row.get("metrics")
        if not isinstance(step, int) or not isinstance(values, dict):
            damaged += 1
            continue
        by_step.setdefault(step, {}).update({str(k): as_number(v) for k, v in values.items()})
    return metrics_from(by_step), damaged


def metrics_from(by_step: Mapping[int, Mapping[str, float]]) -> Metrics:
    """Columns from rows; a step that lacks a metric has NaN there."""
    steps = sorted(by_step)
    keys = dict.fromkeys(key for step in steps for key in by_step[step])
    return Metrics(
        steps=np.array(steps, dtype=np.int64),
        values={k: np.array([by_step[s].get(k, np.nan) for s in steps]) for k in keys},
    )


def as_number(value: Any) -> float:
    """A metric as written: a number, or one of the strings "nan", "inf" and "-inf"."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def _decode_args(text: bytes) -> Mapping[str, Any]:
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:  # cut at the name table's length limit
        return {}
    return value if isinstance(value, dict) else {}


def _loss(
    facts: RunFacts,
    recordings: Sequence[Recording],
    problems: Sequence[str],
    samples: Sequence[Samples],
) -> Loss:
    headers = [r.content.header for r in recordings]
    seen = {r.rank for r in recordings}
    expected = facts.run.world_size if recordings else 0
    notes = list(problems)
    unnamed = sum(h.name_overflow for h in headers)
    if unnamed:
        notes.append(f"{unnamed} spans have no name: the name table of their process was full")
    errors = sum(h.errors for h in headers)
    if errors:
        notes.append(f"the recorder met {errors} internal errors; please report this run")
    notes += [note for s in samples for note in s.notes]
    return Loss(
        dropped_events=sum(h.dropped for h in headers),
        missing_ranks=tuple(rank for rank in range(expected) if rank not in seen),
        truncated=any(r.content.truncated for r in recordings),
        notes=tuple(dict.fromkeys(notes)),
    )
