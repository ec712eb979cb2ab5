"""The spans of `trace.json` once more, as columns: read without decoding an event per span.

One block per process: each column is a little-endian array in Base64, of the smallest type that
holds it, and of one item where all its rows are equal. Starts are differences, so that most need
4 bytes and not 8. Events are left to the viewers of the format.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from grpo_doctor.trace import columns, events
from grpo_doctor.trace.columns import SpanTable
from grpo_doctor.trace.events import MAX_NAME, finite, text
from grpo_doctor.trace.jsonfile import MAX_TIME_NS, Whole
from grpo_doctor.trace.model import Kind, Spans, Trace

_TYPES = ("u1", "i1", "i2", "i4", "i8", "f8")
_KINDS = np.array([int(kind) for kind in Kind], dtype=np.uint8)
_MAX_FLOAT = float(np.finfo(np.float64).max)
_COPIED = ("kind", "thread", "depth", "name", "args", "open")


class Column(msgspec.Struct, frozen=True):
    """An array; `type` is numpy's name of its items. One item stands for all rows."""

    type: str
    data: bytes

    @property
    def values(self) -> NDArray[Any]:
        """The items as they are. Raises ValueError for an unknown type, or data that is cut."""
        if self.type not in _TYPES:
            raise ValueError(f"no column is of type {self.type[:20]!r}")
        return np.frombuffer(self.data, dtype=f"<{self.type}")

    def rows(self, count: int) -> NDArray[Any]:
        """Return all `count` rows. Raises ValueError where the data is not that."""
        values = self.values
        if len(values) not in (1, count):
            raise ValueError(f"{len(values)} values for {count} rows")
        return np.broadcast_to(values, count)


class Block(msgspec.Struct, frozen=True):
    """The spans of one process, by start; `pid` is that of the file. `start_ns` are differences of
    the starts, the first from `origin_ns`."""

    pid: Whole
    origin_ns: Whole
    start_ns: Column
    dur_ns: Column
    kind: Column
    thread: Column
    depth: Column
    name: Column
    args: Column
    value: Column
    open: Column


class PackedSpans(msgspec.Struct, frozen=True):
    """All spans; `names` and `args` by id."""

    names: tuple[str, ...]
    args: tuple[dict[str, Any], ...]
    blocks: tuple[Block, ...]

    def table(self, last_seen: Sequence[tuple[int, int]]) -> SpanTable:
        """Return all spans in the model's order; `last_seen` is each process: its pid in the file,
        and the last moment at which it was seen, in ns.

        Raises:
            ValueError: a column is damaged.
        """
        if len(set(self.names)) < len(self.names):
            raise ValueError("a name occurs twice")
        index = {pid: (row, last_ns) for row, (pid, last_ns) in enumerate(last_seen)}
        limits = len(self.names), len(self.args)
        if not index.keys() >= {block.pid for block in self.blocks}:
            raise ValueError("a block is of an unknown process")
        blocks = [_spans(block, *index[block.pid], *limits) for block in self.blocks]
        return SpanTable(self.names, self.args, columns.join(blocks))


def lines(trace: Trace, spans: Spans) -> Iterator[str]:
    """Yield the JSON of `PackedSpans`, a process per line."""
    names = columns.Interned()
    ids = np.array([names[name[:MAX_NAME]] for name in trace.names], dtype=np.int32)
    spans = replace(spans, name=ids[spans.name])
    yield text({"names": names.names, "args": finite(trace.args)})[:-1] + ',"blocks":['
    separator = "\n"
    for process in trace.processes:
        rows = spans.select(spans.of_process(process.index))
        if len(rows):
            yield separator + text(_block(process.pid, rows))
            separator = ",\n"
    yield "]}"


def _block(pid: int, spans: Spans) -> Block:
    finite_values = np.where(np.isfinite(spans.value), spans.value, 0.0)
    return Block(
        pid=pid,
        origin_ns=int(spans.start_ns[0]),
        start_ns=_narrow(np.diff(spans.start_ns, prepend=spans.start_ns[0])),
        dur_ns=_short(spans.end_ns - spans.start_ns),
        value=_short(finite_values),
        **{name: _short(getattr(spans, name)) for name in _COPIED},
    )


def _short(values: NDArray[Any]) -> Column:
    return _narrow(values[:1] if (values == values[0]).all() else values)


def _narrow(values: NDArray[Any]) -> Column:
    if values.dtype == np.float64 and not (values == np.rint(values).clip(-1e15, 1e15)).all():
        return Column("f8", values.astype("<f8").tobytes())
    low, high = int(values.min()), int(values.max())
    fits = (t for t in _TYPES if np.iinfo(t).min <= low and high <= np.iinfo(t).max)
    name = next(fits)
    return Column(name, values.astype(f"<{name}").tobytes())


def _spans(block: Block, process: int, last_ns: int, names: int, args: int) -> Spans:
    count = len(block.start_ns.values)  # never one for many: what is read bounds memory
    copied = {name: getattr(block, name).rows(count) for name in (*_COPIED, "value")}
    steps_ns, dur_ns = block.start_ns.rows(count), block.dur_ns.rows(count)
    whole = [steps_ns, dur_ns, *(copied[name] for name in _COPIED)]
    if any(values.dtype.kind == "f" for values in whole):
        raise ValueError("only values may be fractions")
    start_ns = block.origin_ns + np.cumsum(steps_ns, dtype=np.int64)
    limits = {
        "start_ns": (start_ns, -MAX_TIME_NS, MAX_TIME_NS),
        "dur_ns": (dur_ns, 0, MAX_TIME_NS),
        "thread": (copied["thread"], 0, events.OVERFLOW),
        "depth": (copied["depth"], 0, 255),
        "name": (copied["name"], 0, names - 1),
        "args": (copied["args"], -1, args - 1),
        "value": (copied["value"], -_MAX_FLOAT, _MAX_FLOAT),
    }
    for name, (values, low, high) in limits.items():
        if count and not (values.min() >= low and values.max() <= high):
            raise ValueError(f"column {name} is out of range")
    if not np.isin(copied["kind"], _KINDS).all():
        raise ValueError("column kind has unknown kinds")
    opened = copied["open"].astype(np.bool_)
    still_ns = np.maximum(last_ns, start_ns)
    return columns.spans_from(
        {
            **copied,
            "open": opened,
            "process": np.full(count, process, dtype=np.int32),
            "start_ns": start_ns,
            "end_ns": np.where(opened, still_ns, start_ns + dur_ns),
        }
    )
