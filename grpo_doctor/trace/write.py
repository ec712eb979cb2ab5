"""Writes `trace.json`: Chrome Trace Event JSON that Perfetto and chrome://tracing open unmodified.

One event per line, and everything of ours before the events, so that `read` streams it.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from grpo_doctor.files import replacing
from grpo_doctor.trace import events, packed
from grpo_doctor.trace.head import head_of
from grpo_doctor.trace.model import Trace

SPANS_KEY = "grpoDoctorSpans"
EVENTS_LINE = '"traceEvents":['
_FLUSH_LINES = 20_000


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
        tracks[process.pid] = set(np.unique(lane[spans.of_process(process.index)]).tolist())
    file.write("{\n")
    for key, value in head_of(trace).items():
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
