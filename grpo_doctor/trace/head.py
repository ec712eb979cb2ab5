"""The part of `trace.json` before its events, typed, and the model made from both.

Unknown keys are skipped: a newer version may add some. Numbers that a stranger wrote as something
else are refused by name. What the model keeps as it is written is decoded into its own types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import field
from msgspec.structs import asdict

from grpo_doctor.trace.columns import SpanTable
from grpo_doctor.trace.jsonfile import Time, Whole, number
from grpo_doctor.trace.model import Gpu, Loss, Metrics, Process, Run, Series, Trace


class HeadClock(msgspec.Struct, frozen=True):
    offset_ns: Whole = 0
    error_ns: Whole | None = None
    method: str = "unknown"


class HeadProcess(msgspec.Struct, frozen=True):
    pid: Whole
    rank: Whole
    os_pid: Whole = 0
    host: str = "unknown"
    role: str = "trainer"
    state: str = "finished"
    local_rank: Whole | None = None
    start_ns: Time | None = None
    end_ns: Time | None = None
    clock: HeadClock = HeadClock()


class HeadMetrics(msgspec.Struct, frozen=True):
    steps: tuple[Whole, ...] = ()
    values: dict[str, list[float | str | None]] = {}


class Facts(msgspec.Struct, frozen=True):
    """The `grpoDoctor` object."""

    format: Whole
    version: str = ""
    run: Run = field(default_factory=Run)
    config: dict[str, Any] = {}
    knobs: dict[str, Any] = {}
    versions: dict[str, str] = {}
    processes: tuple[HeadProcess, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    metrics: HeadMetrics = HeadMetrics()
    loss: Loss = field(default_factory=Loss)

    @property
    def last_seen(self) -> list[tuple[int, int]]:
        """Each process: its pid in the file, and the last moment at which it was seen, in ns."""
        return [(p.pid, p.end_ns or self.run.duration_ns) for p in self.processes]


class Track(msgspec.Struct, frozen=True):
    name: str
    unit: str = ""
    scope: str = "host"
    host: str = "unknown"
    gpu: str | None = None
    rank: Whole | None = None
    os_pid: Whole | None = None
    t_us: tuple[Time, ...] = ()
    v: tuple[float | None, ...] = ()


class Tracks(msgspec.Struct, frozen=True):
    tracks: tuple[Track, ...] = ()


class FormatOnly(msgspec.Struct, frozen=True):
    format: Whole = 0


class FormatHead(msgspec.Struct, frozen=True):
    """As much of the top-level object as every version will have."""

    grpoDoctor: FormatOnly | None = None  # noqa: N815 - the file's key


class Head(msgspec.Struct, frozen=True):
    """The top-level object. `traceEvents` is set only where the whole file was decoded at once;
    `grpoDoctorSpans` are `PackedSpans`, which files of older versions do not have."""

    grpoDoctor: Facts | None = None  # noqa: N815 - the file's key
    grpoDoctorSeries: Tracks = Tracks()  # noqa: N815
    grpoDoctorSpans: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815
    traceEvents: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815


def trace_from(
    path: Path, head: Head, table: SpanTable, notes: Sequence[str], *, truncated: bool
) -> Trace:
    """The model of a decoded file; what reading it lost is added to what the recording lost."""
    facts = head.grpoDoctor
    assert facts is not None
    return Trace(
        source=path.name,
        run=replace(facts.run, config=facts.config, knobs=facts.knobs, versions=facts.versions),
        processes=tuple(_process(i, p) for i, p in enumerate(facts.processes)),
        gpus=facts.gpus,
        names=table.names,
        args=table.args,
        spans=table.spans,
        series=tuple(_series(t) for t in head.grpoDoctorSeries.tracks),
        metrics=_metrics(facts.metrics),
        loss=replace(
            facts.loss,
            truncated=facts.loss.truncated or truncated,
            notes=tuple(dict.fromkeys([*facts.loss.notes, *notes])),
        ),
    )


def _process(index: int, process: HeadProcess) -> Process:
    fields = asdict(process)
    clock: HeadClock = fields.pop("clock")
    return Process(
        index=index,
        clock_offset_ns=clock.offset_ns,
        clock_error_ns=clock.error_ns,
        clock_method=clock.method,
        **fields,
    )


def _series(track: Track) -> Series:
    count = min(len(track.t_us), len(track.v))
    values = [float("nan") if v is None else v for v in track.v[:count]]
    return Series(
        name=track.name,
        unit=track.unit,
        scope=track.scope,
        host=track.host,
        t_ns=np.cumsum(np.array(track.t_us[:count], dtype=np.int64)) * 1000,
        values=np.array(values, dtype=np.float64),
        gpu=track.gpu,
        rank=track.rank,
        pid=track.os_pid,
    )


def _metrics(metrics: HeadMetrics) -> Metrics:
    count = len(metrics.steps)
    absent = {name: _absent(values, count) for name, values in metrics.values.items()}
    return Metrics(
        steps=np.array(metrics.steps, dtype=np.int64),
        values={name: _column(values, count) for name, values in metrics.values.items()},
        absent={name: mask for name, mask in absent.items() if mask.any()},
    )


def _absent(values: Sequence[float | str | None], count: int) -> np.ndarray[Any, Any]:
    flags = [value is None for value in values[:count]]
    return np.array(flags + [True] * (count - len(flags)), dtype=np.bool_)


def _column(values: Sequence[float | str | None], count: int) -> np.ndarray[Any, Any]:
    numbers = [number(value) for value in values[:count]]
    return np.array(numbers + [float("nan")] * (count - len(numbers)), dtype=np.float64)
