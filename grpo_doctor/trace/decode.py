"""Event lines into span columns, block by block."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import compress
from operator import attrgetter
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from grpo_doctor.trace import columns, lanes
from grpo_doctor.trace.events import MAX_NAME
from grpo_doctor.trace.jsonfile import BAD_JSON, BARE_NAN, object_in
from grpo_doctor.trace.model import Kind, Spans

# What the repair of a whole file's head makes of a NaN, see `read`.
_NULL_VALUE = re.compile(rb'(?<="value")\s*:\s*null')
_NO_TIME = re.compile(rb'"(?:ts|dur)"\s*:\s*-?(?:NaN|Infinity)')
# As nanoseconds, a start and a duration of this size together still fit 64 bits.
_Microseconds = Annotated[float, msgspec.Meta(ge=-4e15, le=4e15)]
_Whole = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class Event(msgspec.Struct, gc=False):
    """The keys of an event that a span needs; other keys and kinds of event are skipped."""

    ph: str
    pid: int | str | None = None
    tid: _Whole = 0
    cat: str = ""
    name: str = ""
    ts: _Microseconds = 0.0
    dur: _Microseconds = 0.0
    depth: _Whole = 0
    value: float = 0.0
    args: msgspec.Raw = msgspec.Raw(b"")


_PH, _PID, _TID, _CAT, _NAME, _TS, _DUR, _DEPTH, _VALUE, _ARGS = map(
    attrgetter, ("ph", "pid", "tid", "cat", "name", "ts", "dur", "depth", "value", "args")
)
# Ids 0 and 1 of argument texts are those of events without any.
_NO_ARGS = 2
_OPEN = {"X": False, "B": True, "i": False}
_decoder = msgspec.json.Decoder(list[Event])
_array_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_line_decoder = msgspec.json.Decoder(Event)


class EventBlocks:
    """Collects blocks of events; `table()` joins them. Damaged events are counted, not fatal."""

    def __init__(self, last_seen: Sequence[tuple[int, int]]) -> None:
        """`last_seen` are the trace's processes: (pid in the file, last moment in ns)."""
        self._process = {pid: index for index, (pid, _) in enumerate(last_seen)}
        self._last_ns = np.array([last_ns for _, last_ns in last_seen], dtype=np.int64)
        self._names = _Names()
        self._args = columns.Interned({b"": 0, b"{}": 1})
        self._blocks: list[Spans] = []
        self._lost = {"damaged": 0, "not_numbers": 0, "strangers": 0, "negative": 0}

    @property
    def notes(self) -> list[str]:
        """What could not be used."""
        sentences = {
            "not_numbers": "events held NaN or infinite numbers, which JSON forbids: read as 0",
            "damaged": "damaged events left out",
            "strangers": "events of unknown processes left out",
            "negative": "events had negative durations, read as 0",
        }
        return [f"{self._lost[key]} {text}" for key, text in sentences.items() if self._lost[key]]

    def table(self) -> columns.SpanTable:
        """Return all rows so far, in the model's order."""
        texts = self._args.names[_NO_ARGS:]
        args = tuple(object_in(text.decode("utf-8", "replace")) for text in texts)
        return columns.SpanTable(self._names.names, args, columns.join(self._blocks))

    def add_lines(self, text: bytes) -> None:
        """Add events, one per line, each but perhaps the last followed by a comma."""
        body = text.strip().rstrip(b",")
        if not body:
            return
        try:
            events = _decoder.decode(b"[" + body + b"]")
        except BAD_JSON:
            events = self._one_by_one(body.split(b"\n"))
        self._add(events)

    def add_array(self, text: bytes) -> None:
        """Add a whole JSON array of events. Raises one of BAD_JSON if it is not an array."""
        try:
            events = _decoder.decode(text)
        except BAD_JSON:
            repaired, count = BARE_NAN.subn(b"0", text)
            self._lost["not_numbers"] += count
            events = self._one_by_one(map(bytes, _array_decoder.decode(repaired)))
        self._add(events)

    def _one_by_one(self, lines: Iterable[bytes]) -> list[Event]:
        return [event for line in lines if (event := self._one(line)) is not None]

    def _one(self, line: bytes) -> Event | None:
        line = line.strip().rstrip(b",")
        if not line:
            return None
        try:
            return _line_decoder.decode(line)
        except BAD_JSON:
            pass
        repaired, count = BARE_NAN.subn(b"0", line)
        if not _NO_TIME.search(line):
            try:
                event = _line_decoder.decode(_NULL_VALUE.sub(b":0", repaired))
            except BAD_JSON:
                pass
            else:
                self._lost["not_numbers"] += bool(count)
                return event
        self._lost["damaged"] += 1
        return None

    def _add(self, events: Sequence[Event]) -> None:
        try:
            self._blocks.append(self._block(events))
        except KeyError:  # other events than spans of our processes: the first and last blocks
            self._blocks.append(self._block(self._ours(events)))

    def _block(self, events: Sequence[Event]) -> Spans:
        # `map` and `attrgetter` make no Python frames: half the time of comprehensions.
        count = len(events)
        opened = _column(map(_OPEN.__getitem__, map(_PH, events)), "open", count)
        kind = _column(map(lanes.KINDS.__getitem__, map(_CAT, events)), "kind", count)
        process = _column(map(self._process.__getitem__, map(_PID, events)), "process", count)
        start_ns = _nanoseconds(map(_TS, events), count)
        dur_ns = _nanoseconds(map(_DUR, events), count)
        still_ns = np.maximum(self._last_ns[process], start_ns)
        self._lost["negative"] += int(np.count_nonzero(dur_ns < 0))
        return columns.spans_from(
            {
                "kind": kind,
                "process": process,
                "thread": lanes.threads_of(_column(map(_TID, events), "thread", count)),
                "depth": np.clip(_column(map(_DEPTH, events), "name", count), 0, 255),
                "name": _column(map(self._names.__getitem__, map(_NAME, events)), "name", count),
                "args": self._details(events, kind != Kind.STEP),
                "start_ns": start_ns,
                "end_ns": np.where(opened, still_ns, start_ns + np.maximum(dur_ns, 0)),
                "value": _column(map(_VALUE, events), "value", count),
                "open": opened,
            }
        )

    def _ours(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return those that are spans of a process of this trace."""
        spans = [e for e in events if e.cat in lanes.KINDS and e.ph in _OPEN]
        ours = [e for e in spans if e.pid in self._process]
        self._lost["strangers"] += len(spans) - len(ours)
        return ours

    def _details(self, events: Sequence[Event], has_args: NDArray[np.bool_]) -> NDArray[np.int32]:
        # A step's arguments are its number again; every step would be an entry of its own.
        ids = np.full(len(events), -1, dtype=np.int32)
        texts = map(bytes, map(_ARGS, compress(events, has_args)))
        numbered = np.fromiter(map(self._args.__getitem__, texts), dtype=np.int32)
        ids[has_args] = np.maximum(numbered - _NO_ARGS, -1)
        return ids


class _Names(columns.Interned):
    """Names by id, cut at the length that `write` writes."""

    def __missing__(self, name: str) -> int:
        return super().__missing__(name) if len(name) <= MAX_NAME else self[name[:MAX_NAME]]


def _column(values: Iterable[Any], name: str, count: int) -> NDArray[Any]:
    return np.fromiter(values, dtype=columns.DTYPES[name], count=count)


def _nanoseconds(microseconds: Iterable[float], count: int) -> NDArray[np.int64]:
    values = np.fromiter(microseconds, dtype=np.float64, count=count)
    return np.rint(values * 1000).astype(np.int64)
