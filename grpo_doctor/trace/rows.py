"""A recording's rows for the model: what ended, what never did, and where `init` began."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.trace import columns
from grpo_doctor.trace.model import Kind, Process, Spans
from grpo_doctor.trace.processes import NameTable, Recording
from grpo_doctor_probes.record import layout

_COLLECTIVES = (Kind.COLLECTIVE, Kind.COLLECTIVE_WAIT)


def rows_of(recording: Recording, process: Process, table: NameTable, shift_ns: int) -> Spans:
    """Return all spans of a process; `shift_ns` takes its clock to the trace's."""
    ids = table.translation(recording)
    closed = _closed(recording, process, ids, shift_ns)
    opened = _open(recording, process, table, shift_ns)
    return _from_process_start(columns.join([closed, opened]), process, table.names)


def _closed(recording: Recording, process: Process, ids: NDArray[np.int32], shift_ns: int) -> Spans:
    records = recording.content.records
    records = records[records["kind"] != layout.COUNTER]
    return columns.spans_from(
        {
            "kind": records["kind"],
            "process": np.full(len(records), process.index),
            "thread": _main_first(records["thread"].astype(np.int32), recording.main_thread),
            "depth": records["depth"],
            "name": ids[records["name"], 0],
            "args": ids[records["name"], 1],
            "start_ns": records["start_ns"] + shift_ns,
            "end_ns": records["end_ns"] + shift_ns,
            "value": records["value"],
            "open": np.zeros(len(records), dtype=np.bool_),
        }
    )


def _open(recording: Recording, process: Process, table: NameTable, shift_ns: int) -> Spans:
    rows = columns.Rows()
    depths: dict[int, int] = {}
    for span in recording.open_spans:
        kind = Kind(span.kind) if span.kind in (Kind.STEP, *_COLLECTIVES) else Kind.SPAN
        depth = depths[span.thread] = depths.get(span.thread, -1) + 1
        name, args = table.ids(span.name, span.args)
        value = float(span.sequence)
        if kind == Kind.STEP:
            value = float(recording.content.header.step or 0)
        thread = int(_main_first(np.array([span.thread]), recording.main_thread)[0])
        start_ns = span.start_ns + shift_ns
        end_ns = max(process.end_ns or 0, start_ns)
        own = {"process": process.index, "thread": thread, "depth": depth, "args": args}
        rows.add(kind, name, start_ns, end_ns, value=value, open=True, **own)
    return rows.spans()


def _main_first(threads: NDArray[Any], main: int) -> NDArray[Any]:
    """Thread slots renumbered so that the step's thread is 0."""
    if main == 0:
        return threads
    return np.where(threads == main, 0, np.where(threads == 0, main, threads))


def _from_process_start(spans: Spans, process: Process, names: tuple[str, ...]) -> Spans:
    """The first `init` begins with the process: interpreter and recorder imports are part of it."""
    if len(spans) == 0 or process.start_ns is None:
        return spans
    if names[spans.name[0]] != "init" or spans.depth[0] != 0:
        return spans
    start_ns = spans.start_ns.copy()
    start_ns[0] = process.start_ns
    return replace(spans, start_ns=start_ns)
