"""Event lines into span columns, block by block."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from grpo_doctor.trace import columns, lanes
from grpo_doctor.trace.head import Head
from grpo_doctor.trace.model import Kind, Spans

_BARE_NAN = re.compile(rb"(?<=[:\[,])\s*-?(?:NaN|Infinity)(?=\s*[,}\]])")
_MAX_NAME = 200


class Event(msgspec.Struct, gc=False):
    """The keys of an event that a span needs; other keys and kinds of event are skipped."""

    ph: str
    pid: int | None = None
    tid: int = 0
    cat: str = ""
    name: str = ""
    ts: float = 0.0
    dur: float = 0.0
    depth: int = 0
    value: float = 0.0
    args: msgspec.Raw = msgspec.Raw(b"")


_decoder = msgspec.json.Decoder(list[Event])
_line_decoder = msgspec.json.Decoder(Event)


class EventBlocks:
    """Collects blocks of events; `spans()` joins them. Damaged lines are counted, not fatal."""

    def __init__(self, head: Head) -> None:
        assert head.grpoDoctor is not None
        processes = head.grpoDoctor.processes
        self._process = {p.pid: index for index, p in enumerate(processes)}
        self._last_ns = {p.pid: p.end_ns or head.grpoDoctor.run.duration_ns for p in processes}
        self._names = columns.Interned()
        self._args = columns.Interned()
        self._blocks: list[Spans] = []
        self._damaged = 0
        self._not_numbers = 0
        self._strangers = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Span names by id."""
        return self._names.names

    @property
    def args(self) -> tuple[Mapping[str, Any], ...]:
        """Argument objects by id."""
        return tuple(msgspec.json.decode(text) for text in self._args.names)

    @property
    def notes(self) -> list[str]:
        """What could not be used."""
        found = []
        if self._not_numbers:
            found.append(f"{self._not_numbers} events held NaN or infinite numbers, against JSON")
        if self._damaged:
            found.append(f"{self._damaged} damaged events left out")
        if self._strangers:
            found.append(f"{self._strangers} events of unknown processes left out")
        return found

    def spans(self) -> Spans:
        """All rows so far, in the model's order."""
        return columns.join(self._blocks)

    def add_lines(self, text: bytes) -> None:
        """Adds events, one per line, each but perhaps the last followed by a comma."""
        body = text.strip().rstrip(b",")
        if not body:
            return
        try:
            events = _decoder.decode(b"[" + body + b"]")
        except (msgspec.DecodeError, UnicodeDecodeError):
            events = [event for line in body.split(b"\n") if (event := self._one(line))]
        self._add(events)

    def add_array(self, text: bytes) -> None:
        """Adds a whole JSON array of events. Raises msgspec.DecodeError if it is damaged."""
        self._add(_decoder.decode(_BARE_NAN.sub(b"null", text)))

    def _one(self, line: bytes) -> Event | None:
        line = line.strip().rstrip(b",")
        if not line:
            return None
        try:
            return _line_decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        repaired, count = _BARE_NAN.subn(b"0", line)
        if count:
            self._not_numbers += 1
            try:
                return _line_decoder.decode(repaired)
            except (msgspec.DecodeError, UnicodeDecodeError):
                pass
        self._damaged += 1
        return None

    def _add(self, events: list[Event]) -> None:
        rows = [e for e in events if e.cat in lanes.KINDS and e.ph in "XBi"]
        known = [e for e in rows if e.pid in self._process]
        self._strangers += len(rows) - len(known)
        if not known:
            return
        opened = np.array([e.ph == "B" for e in known], dtype=np.bool_)
        start_ns = np.rint(np.array([e.ts for e in known]) * 1000).astype(np.int64)
        dur_ns = np.rint(np.array([e.dur for e in known]) * 1000).astype(np.int64)
        last_ns = np.array([self._last_ns[e.pid or 0] for e in known], dtype=np.int64)
        self._blocks.append(
            columns.spans_from(
                {
                    "kind": [lanes.KINDS[e.cat] for e in known],
                    "process": [self._process[e.pid or 0] for e in known],
                    "thread": lanes.threads_of(np.array([e.tid for e in known], dtype=np.int64)),
                    "depth": [min(max(e.depth, 0), 255) for e in known],
                    "name": [self._names(e.name[:_MAX_NAME]) for e in known],
                    "args": [self._details(e) for e in known],
                    "start_ns": start_ns,
                    "end_ns": np.where(
                        opened, np.maximum(last_ns, start_ns), start_ns + np.maximum(dur_ns, 0)
                    ),
                    "value": [e.value for e in known],
                    "open": opened,
                }
            )
        )

    def _details(self, event: Event) -> int:
        # A step's arguments are its number again; every step would be a name of its own.
        if event.cat == lanes.CATEGORIES[Kind.STEP] or len(event.args) <= len(b"{}"):
            return -1
        text = bytes(event.args)
        return self._args(text.decode()) if text.startswith(b"{") else -1
