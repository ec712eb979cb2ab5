"""The events of a Chrome trace, block by block: a file of gigabytes takes a few blocks of memory.

Blocks are cut between two events and decoded into typed structs at once, which takes a fifth of
the time of `json` on whole files; what a block may not be is found by trying.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from grpo_doctor.bounded import EVENT
from grpo_doctor.errors import TraceError
from grpo_doctor.importers.text import UNREADABLE, opened, read_block
from grpo_doctor.trace.jsonfile import BAD_JSON, BARE_NAN, object_in

_BLOCK_BYTES = 1 << 20
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb"\}\s*,\s*\{")
# Kineto writes an event's brackets at this depth, so that a nested object is never taken for one.
_KINETO_BETWEEN = b"\n  },\n  {"
# In a block that is no JSON everything before its end has to be tried; a few ends are enough for
# objects that are nested in an event.
_MOST_ENDS = 16
_SEARCHED_BYTES = 1 << 16
# An event, with its arguments and stacks, and what stands before the events.
_MOST_EVENT_BYTES = EVENT.bytes


class Event(msgspec.Struct, gc=False):
    """One event; `ts` and `dur` are microseconds. Other keys are skipped."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: float = 0.0
    dur: float = 0.0
    pid: int | str = 0
    tid: int | str = 0
    args: msgspec.Raw = msgspec.Raw(b"")


class Device(msgspec.Struct, frozen=True):
    """A GPU of the host, as far as Kineto describes it."""

    id: int = 0
    name: str = "GPU"
    totalGlobalMem: int = 0  # noqa: N815 - the file's key


class Distributed(msgspec.Struct, frozen=True):
    """What the job's process group reports about the rank."""

    rank: int | None = None
    world_size: int = 0
    backend: str = ""
    nccl_version: str = ""


class Head(msgspec.Struct, frozen=True):
    """What stands before the events, or after them."""

    baseTimeNanoseconds: int = 0  # noqa: N815 - the file's key
    distributedInfo: Distributed | None = None  # noqa: N815
    deviceProperties: list[Device] = []  # noqa: N815


class EventStream:
    """The events of one file, once; `head`, `truncated` and `damaged` are known after them."""

    def __init__(self, path: Path) -> None:
        self.head = Head()
        self.truncated = False
        self.damaged = 0
        self._path = path
        self._decoder = msgspec.json.Decoder(list[Event])
        self._read_bytes = 0

    def blocks(self) -> Iterator[Sequence[Event]]:
        """Return a list of events, in the file's order.

        Raises:
            TraceError: the file can't be read, or is not a Chrome trace; the message has the byte.
        """
        blocks = self._blocks()
        pending = self._after_head(blocks)
        for block in blocks:
            pending += block
            end = self._decodable(pending)
            if end:
                yield from self._take(pending[:end])
                pending = pending[end:].lstrip(b", \r\n\t")
            elif len(pending) > _MOST_EVENT_BYTES:
                raise self._no_trace(f"an event has over {_MOST_EVENT_BYTES >> 20} MiB")
        yield from self._last(pending)

    def _blocks(self) -> Iterator[bytes]:
        try:
            with opened(self._path) as file:
                while block := read_block(file, _BLOCK_BYTES):
                    self._read_bytes += len(block)
                    yield block
        except UNREADABLE as problem:
            if not self._read_bytes:
                raise TraceError(f"can't read {self._path}: {problem}.") from problem
            self.truncated = True  # compressed data that ends early

    def _after_head(self, blocks: Iterator[bytes]) -> bytes:
        """Read what stands before the events; return what of them was read with it."""
        text = b""
        for block in blocks:
            text += block
            if text.lstrip()[:1] == b"[":
                return text.lstrip()[1:]
            begin = _EVENTS.search(text)
            if begin:
                self._merge_head(text[: begin.end()] + b"]}")
                return text[begin.end() :]
            if len(text) > _MOST_EVENT_BYTES:
                break
        raise self._no_trace("it has no `traceEvents`")

    def _merge_head(self, text: bytes) -> None:
        """Facts that stand before the events or after them; the first to say one is believed."""
        try:
            head = msgspec.json.decode(BARE_NAN.sub(b"null", text), type=Head)
        except BAD_JSON:
            return
        self.head = Head(
            self.head.baseTimeNanoseconds or head.baseTimeNanoseconds,
            self.head.distributedInfo or head.distributedInfo,
            self.head.deviceProperties or head.deviceProperties,
        )

    def _decodable(self, text: bytes) -> int:
        """Return where the last whole event of a block ends, by its looks; 0: nowhere."""
        end = text.rfind(_KINETO_BETWEEN)
        if end >= 0:
            return end + len(b"\n  }")
        between_events = list(_BETWEEN.finditer(text, max(0, len(text) - _SEARCHED_BYTES)))
        for between in reversed(between_events[-_MOST_ENDS:]):
            if self._events(text[: between.start() + 1]) is not None:
                return between.start() + 1
        return 0

    def _take(self, text: bytes) -> Iterator[Sequence[Event]]:
        events = self._events(text)
        yield self._one_by_one(text) if events is None else events

    def _events(self, text: bytes) -> list[Event] | None:
        try:
            return self._decoder.decode(b"[" + text + b"]")
        except BAD_JSON:
            return None

    def _one_by_one(self, text: bytes) -> list[Event]:
        """Return the events of a block in which one is damaged: only that one is lost."""
        events: list[Event] = []
        pieces = text.split(_KINETO_BETWEEN)
        for index, piece in enumerate(pieces):
            opening = b"{" if index else b""
            closing = b"}" if index < len(pieces) - 1 else b""
            event_text = BARE_NAN.sub(b"null", opening + piece + closing)
            decoded = self._events(event_text)
            self.damaged += decoded is None
            events += decoded or ()
        return events

    def _last(self, text: bytes) -> Iterator[Sequence[Event]]:
        """Yield the events before the array's end, and what follows it."""
        end = self._end_of_array(text)
        if end is not None:
            if text[:end].strip():
                yield from self._take(text[:end].rstrip(b", \r\n\t"))
            tail = text[end + 1 :].strip().removeprefix(b",")
            self._merge_head(b"{" + tail)
            return
        self.truncated = True
        for between in reversed(list(_BETWEEN.finditer(text))):
            events = self._events(text[: between.start() + 1])
            if events is not None:
                yield events
                return

    def _end_of_array(self, text: bytes) -> int | None:
        """Return where the bracket is that closes the array of which `text` is the rest."""
        decoded = "[" + text.decode("latin-1")  # a byte is a letter
        try:
            _, end = json.JSONDecoder(strict=False).raw_decode(decoded)
        except (ValueError, RecursionError):
            last = text.rfind(b"\n  ]")
            return last + 3 if last >= 0 else None
        return int(end) - 2

    def _no_trace(self, reason: str) -> TraceError:
        return TraceError(
            f"{self._path} is not a PyTorch profiler trace: {reason} within the first "
            f"{self._read_bytes} bytes. Accepted: what `export_chrome_trace` or "
            "`tensorboard_trace_handler` wrote, one file or a folder of one per rank."
        )


def arguments(event: Event) -> dict[str, Any]:
    """Return an event's arguments; none where they are damaged."""
    return object_in(event.args) if event.args else {}
