"""The part of `trace.json` before its events, typed, and the model made from both.

Unknown keys are skipped: a newer version may add some. Numbers that a stranger wrote as something
else are refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from grpo_doctor.trace.decode import EventBlocks
from grpo_doctor.trace.jsonfile import MAX_TIME_NS, MAX_WHOLE, number
from grpo_doctor.trace.model import (
    Exit,
    Gpu,
    Loss,
    Metrics,
    Origin,
    Process,
    RolloutServer,
    Run,
    Series,
    Trace,
)

# Whole numbers are refused where arithmetic with them would leave 64 bits.
Whole = Annotated[int, msgspec.Meta(ge=-MAX_WHOLE, le=MAX_WHOLE)]
Time = Annotated[int, msgspec.Meta(ge=-MAX_TIME_NS, le=MAX_TIME_NS)]


class HeadExit(msgspec.Struct, frozen=True):
    state: str = "unknown"
    code: Whole | None = None
    signal: str | None = None


class HeadOrigin(msgspec.Struct, frozen=True):
    what: str
    limits: list[str] = []
    phases: list[str] = []
    durations_only: bool = False


class HeadServer(msgspec.Struct, frozen=True):
    host: str = "unknown"
    pid: Whole = 0
    command: list[str] = []


class HeadRun(msgspec.Struct, frozen=True):
    id: str = ""
    command: list[str] = []
    framework: str = "unknown"
    framework_version: str | None = None
    world_size: Whole = 0
    started_unix_ns: Whole = 0
    duration_ns: Time = 0
    notes: list[str] = []
    libraries: list[str] = []
    exit: HeadExit = HeadExit()
    origin: HeadOrigin | None = None
    servers: list[HeadServer] = []


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


class HeadGpu(msgspec.Struct, frozen=True):
    uuid: str
    name: str = "GPU"
    index: Whole = 0
    host: str = "unknown"
    memory_total_bytes: Whole = 0
    mig: str | None = None
    visible: bool = True
    missing: list[str] = []


class HeadMetrics(msgspec.Struct, frozen=True):
    steps: list[Whole] = []
    values: dict[str, list[float | str | None]] = {}


class HeadLoss(msgspec.Struct, frozen=True):
    dropped_events: Whole = 0
    missing_ranks: list[Whole] = []
    truncated: bool = False
    notes: list[str] = []


class Facts(msgspec.Struct, frozen=True):
    """The `grpoDoctor` object."""

    format: Whole
    version: str = ""
    run: HeadRun = HeadRun()
    config: dict[str, Any] = {}
    knobs: dict[str, Any] = {}
    versions: dict[str, str] = {}
    processes: list[HeadProcess] = []
    gpus: list[HeadGpu] = []
    metrics: HeadMetrics = HeadMetrics()
    loss: HeadLoss = HeadLoss()

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
    t_us: list[Time] = []
    v: list[float | None] = []


class Tracks(msgspec.Struct, frozen=True):
    tracks: list[Track] = []


class FormatOnly(msgspec.Struct, frozen=True):
    format: Whole = 0


class FormatHead(msgspec.Struct, frozen=True):
    """As much of the top-level object as every version will have."""

    grpoDoctor: FormatOnly | None = None  # noqa: N815 - the file's key


class Head(msgspec.Struct, frozen=True):
    """The top-level object. `traceEvents` is set only where the whole file was decoded at once."""

    grpoDoctor: Facts | None = None  # noqa: N815 - the file's key
    grpoDoctorSeries: Tracks = Tracks()  # noqa: N815
    traceEvents: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815


def trace_from(
    path: Path, head: Head, events: EventBlocks, notes: Sequence[str], *, truncated: bool
) -> Trace:
    """The model of a decoded file; what reading it lost is added to what the recording lost."""
    facts = head.grpoDoctor
    assert facts is not None
    run = facts.run
    return Trace(
        source=path.name,
        run=Run(
            id=run.id,
            command=tuple(run.command),
            framework=run.framework,
            framework_version=run.framework_version,
            world_size=run.world_size,
            started_unix_ns=run.started_unix_ns,
            duration_ns=run.duration_ns,
            notes=tuple(run.notes),
            libraries=tuple(run.libraries),
            exit=Exit(run.exit.state, run.exit.code, run.exit.signal),
            config=facts.config,
            knobs=facts.knobs,
            versions=facts.versions,
            origin=_origin(run.origin),
            servers=tuple(RolloutServer(s.host, s.pid, tuple(s.command)) for s in run.servers),
        ),
        processes=tuple(_process(i, p) for i, p in enumerate(facts.processes)),
        gpus=tuple(_gpu(gpu) for gpu in facts.gpus),
        names=events.names,
        args=events.args,
        spans=events.spans(),
        series=tuple(_series(t) for t in head.grpoDoctorSeries.tracks),
        metrics=_metrics(facts.metrics),
        loss=Loss(
            dropped_events=facts.loss.dropped_events,
            missing_ranks=tuple(facts.loss.missing_ranks),
            truncated=facts.loss.truncated or truncated,
            notes=tuple(dict.fromkeys([*facts.loss.notes, *notes])),
        ),
    )


def _origin(said: HeadOrigin | None) -> Origin | None:
    if said is None:
        return None
    limits, phases = tuple(said.limits), frozenset(said.phases)
    return Origin(said.what, limits, phases, said.durations_only)


def _process(index: int, process: HeadProcess) -> Process:
    return Process(
        index=index,
        pid=process.pid,
        os_pid=process.os_pid,
        host=process.host,
        rank=process.rank,
        role=process.role,
        state=process.state,
        local_rank=process.local_rank,
        clock_offset_ns=process.clock.offset_ns,
        clock_error_ns=process.clock.error_ns,
        clock_method=process.clock.method,
        start_ns=process.start_ns,
        end_ns=process.end_ns,
    )


def _gpu(gpu: HeadGpu) -> Gpu:
    return Gpu(
        uuid=gpu.uuid,
        name=gpu.name,
        index=gpu.index,
        host=gpu.host,
        memory_total_bytes=gpu.memory_total_bytes,
        mig=gpu.mig,
        visible=gpu.visible,
        missing=tuple(gpu.missing),
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
