"""The part of `trace.json` before its events: what `write` encodes and `read` decodes.

The model's own facts are in it as they are. Only columns have a form of their own: samples and
metrics. Unknown keys are skipped: a newer version may add some. Numbers that a stranger wrote as
something else are refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import field

from grpo_doctor import __version__
from grpo_doctor.trace.columns import SpanTable
from grpo_doctor.trace.events import finite, series_pids
from grpo_doctor.trace.jsonfile import Time, Whole, number
from grpo_doctor.trace.model import FORMAT, Gpu, Loss, Metrics, Process, Run, Series, Trace
from grpo_doctor_reports.schema.trajectories import Trajectories


class MetricColumns(msgspec.Struct, frozen=True):
    """`Metrics`. NaN and infinities are findings, and JSON has no numbers for them: they are texts.
    A step that has no such metric has null."""

    steps: tuple[Whole, ...] = ()
    values: dict[str, list[float | str | None]] = {}

    @classmethod
    def of(cls, metrics: Metrics) -> MetricColumns:
        """Return what is written of `metrics`."""
        columns: dict[str, list[float | str | None]] = {}
        for name, values in metrics.values.items():
            absent = metrics.absent.get(name, np.zeros(len(values), np.bool_)).tolist()
            pairs = zip(values.tolist(), absent, strict=True)
            columns[name] = [None if a else v if math.isfinite(v) else str(v) for v, a in pairs]
        return cls(tuple(metrics.steps.tolist()), columns)

    @property
    def metrics(self) -> Metrics:
        """The metrics; a column that is shorter than the steps lacks the last ones."""
        columns = {name: self._padded(values) for name, values in self.values.items()}
        absent = {
            name: np.array([v is None for v in column], np.bool_)
            for name, column in columns.items()
        }
        return Metrics(
            steps=np.array(self.steps, dtype=np.int64),
            values={n: np.array([number(v) for v in c]) for n, c in columns.items()},
            absent={n: mask for n, mask in absent.items() if mask.any()},
        )

    def _padded(self, values: list[float | str | None]) -> list[float | str | None]:
        count = len(self.steps)
        return values[:count] + [None] * (count - len(values))


class Track(msgspec.Struct, frozen=True):
    """`Series` at its full rate: `t_us` are differences, `v` is null where unknown. `pid` is that
    of the events which show it."""

    name: str
    pid: int = 0
    unit: str = ""
    scope: str = "host"
    host: str = "unknown"
    gpu: str | None = None
    rank: Whole | None = None
    os_pid: Whole | None = None
    t_us: tuple[Time, ...] = ()
    v: tuple[float | None, ...] = ()

    @classmethod
    def of(cls, series: Series, pid: int) -> Track:
        """Return what is written of `series`."""
        return cls(
            name=series.name,
            pid=pid,
            unit=series.unit,
            scope=series.scope,
            host=series.host,
            gpu=series.gpu,
            rank=series.rank,
            os_pid=series.pid,
            t_us=tuple(np.diff(series.t_ns // 1000, prepend=0).tolist()),
            v=tuple(v if math.isfinite(v) else None for v in series.values.tolist()),
        )

    @property
    def series(self) -> Series:
        """The series, in microseconds."""
        count = min(len(self.t_us), len(self.v))
        return Series(
            name=self.name,
            unit=self.unit,
            scope=self.scope,
            host=self.host,
            t_ns=np.cumsum(np.array(self.t_us[:count], dtype=np.int64)) * 1000,
            values=np.array(self.v[:count], dtype=np.float64),  # None is NaN
            gpu=self.gpu,
            rank=self.rank,
            pid=self.os_pid,
        )


class Tracks(msgspec.Struct, frozen=True):
    tracks: tuple[Track, ...] = ()


class Facts(msgspec.Struct, frozen=True):
    """The `grpoDoctor` object: all facts that are not events. Settings are next to `run`."""

    format: Whole
    version: str = ""
    run: Run = field(default_factory=Run)
    config: dict[str, Any] = {}
    knobs: dict[str, Any] = {}
    versions: Mapping[str, str] = {}
    processes: tuple[Process, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    metrics: MetricColumns = MetricColumns()
    loss: Loss = field(default_factory=Loss)
    trajectories: Trajectories | None = None

    @property
    def last_seen(self) -> list[tuple[int, int]]:
        """Each process: its pid in the file, and the last moment at which it was seen, in ns."""
        return [(p.pid, p.end_ns or self.run.duration_ns) for p in self.processes]


class FormatOnly(msgspec.Struct, frozen=True):
    format: Whole = 0


class FormatHead(msgspec.Struct, frozen=True):
    """As much of the top-level object as every version will have."""

    grpoDoctor: FormatOnly | None = None  # noqa: N815 - the file's key


class Head(msgspec.Struct, frozen=True):
    """The top-level object without its events; `grpoDoctorSpans` are `PackedSpans`."""

    grpoDoctor: Facts | None = None  # noqa: N815 - the file's key
    grpoDoctorSeries: Tracks = Tracks()  # noqa: N815
    grpoDoctorSpans: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815


def head_of(trace: Trace) -> dict[str, Any]:
    """Return all that is written before the spans, by key: for other readers, then ours."""
    run = trace.run
    facts = Facts(
        format=FORMAT,
        version=__version__,
        run=replace(run, config={}, knobs={}, versions={}),
        config=finite(run.config),
        knobs=finite(run.knobs),
        versions=run.versions,
        processes=trace.processes,
        gpus=trace.gpus,
        metrics=MetricColumns.of(trace.metrics),
        loss=trace.loss,
        trajectories=trace.trajectories,
    )
    return {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": run.started_unix_ns,
        "traceName": "trace.json",
        "distributedInfo": {"world_size": run.world_size},
        "metadata": {
            "grpo_doctor.format": str(FORMAT),
            "run.id": run.id,
            "run.framework": run.framework,
            "loss.dropped_events": trace.loss.dropped_events,
        },
        "grpoDoctor": facts,
        "grpoDoctorSeries": Tracks(tuple(map(Track.of, trace.series, series_pids(trace)))),
    }


def trace_from(
    path: Path, head: Head, table: SpanTable, notes: Sequence[str], *, truncated: bool
) -> Trace:
    """The model of a decoded file; what reading it lost is added to what the recording lost."""
    facts = head.grpoDoctor
    assert facts is not None
    return Trace(
        source=path.name,
        run=replace(facts.run, config=facts.config, knobs=facts.knobs, versions=facts.versions),
        processes=tuple(replace(p, index=i) for i, p in enumerate(facts.processes)),
        gpus=facts.gpus,
        names=table.names,
        args=table.args,
        spans=table.spans,
        series=tuple(track.series for track in head.grpoDoctorSeries.tracks),
        metrics=facts.metrics.metrics,
        loss=replace(
            facts.loss,
            truncated=facts.loss.truncated or truncated,
            notes=tuple(dict.fromkeys([*facts.loss.notes, *notes])),
        ),
        trajectories=facts.trajectories,
    )
