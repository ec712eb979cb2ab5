"""Writes `trace.json`: Chrome Trace Event JSON that Perfetto and chrome://tracing open unmodified.

One event per line, and everything of ours before the events, so that `read` streams it.
"""

from __future__ import annotations

import gzip
import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from grpo_doctor import __version__
from grpo_doctor.files import replacing
from grpo_doctor.trace import events, packed
from grpo_doctor.trace.model import FORMAT, Metrics, Process, Series, Trace

SPANS_KEY = "grpoDoctorSpans"
EVENTS_LINE = '"traceEvents":['
_FLUSH_LINES = 20_000
_ONLY_WHERE_KNOWN = ("libraries", "origin", "uncaught", "unhooked", "ended", "servers")


def write_trace(trace: Trace, path: Path) -> None:
    """Write `path` (gzipped if it ends in .gz) in one step: it is whole or not there.

    Raises:
        OutputError: the file can't be written.
    """
    with replacing(path) as raw, _text(raw, compressed=path.suffix == ".gz") as file:
        _write(trace, file)


@contextmanager
def _text(raw: IO[bytes], *, compressed: bool) -> Iterator[IO[str]]:
    binary: Any = gzip.GzipFile("", "wb", 6, raw, mtime=0) if compressed else raw
    with io.TextIOWrapper(binary, encoding="utf-8", errors="replace", newline="\n") as file:
        yield file


def _write(trace: Trace, file: IO[str]) -> None:
    spans, lane = events.nested(trace)
    tracks: dict[int, set[int]] = {}
    for process in trace.processes:
        tracks[process.pid] = set(np.unique(lane[spans.process == process.index]).tolist())
    head = {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": trace.run.started_unix_ns,
        "traceName": "trace.json",
        "distributedInfo": {"world_size": trace.run.world_size},
        "metadata": {
            "grpo_doctor.format": str(FORMAT),
            "run.id": trace.run.id,
            "run.framework": trace.run.framework,
            "loss.dropped_events": trace.loss.dropped_events,
        },
        "grpoDoctor": _document_head(trace),
        "grpoDoctorSeries": {"tracks": [_series(trace, s) for s in trace.series]},
    }
    file.write("{\n")
    for key, value in head.items():
        file.write(f"{events.text(key)}:{events.text(value)},\n")
    file.write(f"{events.text(SPANS_KEY)}:")
    file.writelines(packed.lines(trace, spans))
    file.write(f",\n{EVENTS_LINE}\n")
    lines = _lines(trace, spans, lane, tracks)
    separator = ""
    while batch := list(islice(lines, _FLUSH_LINES)):
        file.write(separator + ",\n".join(batch))
        separator = ",\n"
    file.write("\n]}\n")


def _lines(trace: Trace, spans: Any, lane: Any, tracks: dict[int, set[int]]) -> Iterator[str]:
    yield from events.metadata_lines(trace, tracks)
    yield from events.span_lines(trace, spans, lane)
    yield from events.counter_lines(trace)


def _document_head(trace: Trace) -> dict[str, Any]:
    """Return the `grpoDoctor` object: all facts that are not events."""
    run = asdict(trace.run)
    settings = {key: run.pop(key) for key in ("config", "knobs", "versions")}
    if trace.run.origin:
        run["origin"]["phases"] = sorted(trace.run.origin.phases)
    return {
        "format": FORMAT,
        "version": __version__,
        "run": {key: value for key, value in run.items() if value or key not in _ONLY_WHERE_KNOWN},
        "config": events.finite(settings["config"]),
        "knobs": events.finite(settings["knobs"]),
        "versions": settings["versions"],
        "processes": [_process(p) for p in trace.processes],
        "gpus": [asdict(gpu) for gpu in trace.gpus],
        "metrics": _metrics(trace.metrics),
        "loss": asdict(trace.loss),
    }


def _process(process: Process) -> dict[str, Any]:
    facts = asdict(process)
    del facts["index"]
    clock = {key: facts.pop(f"clock_{key}") for key in ("offset_ns", "error_ns", "method")}
    return {**facts, "clock": clock}


def _series(trace: Trace, series: Series) -> dict[str, Any]:
    """Full rate: times as differences of microseconds, values as they are, null where unknown."""
    t_us = series.t_ns // 1000
    return {
        "pid": events.series_pid(trace, series),
        "name": series.name,
        "unit": series.unit,
        "scope": series.scope,
        "host": series.host,
        "gpu": series.gpu,
        "rank": series.rank,
        "os_pid": series.pid,
        "t_us": np.diff(t_us, prepend=0).tolist(),
        "v": [v if math.isfinite(v) else None for v in series.values.tolist()],
    }


def _metrics(metrics: Metrics) -> dict[str, Any]:
    # NaN and infinities are findings, and JSON has no numbers for them: they travel as strings.
    # A step that has no such metric has null.
    return {
        "steps": metrics.steps.tolist(),
        "values": {
            name: _column(values.tolist(), metrics.absent.get(name))
            for name, values in metrics.values.items()
        },
    }


def _column(values: Sequence[float], absent: NDArray[np.bool_] | None) -> list[float | str | None]:
    numbers = [v if math.isfinite(v) else str(v) for v in values]
    if absent is None:
        return list(numbers)
    return [None if is_absent else v for v, is_absent in zip(numbers, absent.tolist(), strict=True)]
