"""What a process is doing now, read from its span file by another process.

Works on a running, hung or killed process alike: the open-span stacks are in the mapped header.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_doctor_probes.record import layout

_COLLECTIVES = (layout.COLLECTIVE, layout.COLLECTIVE_WAIT)
_MOST_FACTS_BYTES = 1 << 20
_NOTHING_OPEN = bytes(layout.THREAD_BYTES - layout.THREAD_INFO.size)


@dataclass(frozen=True)
class OpenSpan:
    """A span that was begun and not ended. `start_ns` is CLOCK_MONOTONIC of its host.

    `args` is the JSON text of its arguments, empty without any. `sequence` is that of a collective
    within its group, modulo 2**24; 0 for everything else.
    """

    name: str
    start_ns: int
    thread: int
    args: str = ""
    kind: int = layout.SPAN
    sequence: int = 0


@dataclass(frozen=True)
class Header:
    """The header of a span file at the moment of reading.

    `begun_ns` has for each thread when its latest span began, open or ended; 0 without any.
    """

    pid: int
    rank: int
    start_monotonic_ns: int
    start_unix_ns: int
    dropped: int
    segments: int
    name_overflow: int
    closed_ns: int
    errors: int
    step: int | None
    names: tuple[str, ...]
    threads: tuple[str, ...]
    open_spans: tuple[OpenSpan, ...]
    begun_ns: tuple[int, ...] = ()


def read_header(path: Path) -> Header:
    """Read the header of `path`.

    Raises:
        OSError: the file can't be read.
        ValueError: it is not a span file, is of a newer version, or ends within its header.
    """
    with path.open("rb") as file:
        return parse_header(file.read(layout.HEADER_BYTES))


def parse_header(data: bytes) -> Header:
    """Parse the first HEADER_BYTES of a span file. Raises ValueError as `read_header`."""
    if len(data) < layout.HEADER_BYTES:
        raise ValueError(f"ends after {len(data)} bytes, within its header: half-written")
    magic, version, *sizes, pid, rank, monotonic, unix = layout.FIXED.unpack_from(data)
    if magic != layout.MAGIC:
        raise ValueError("is not a span file")
    if version != layout.VERSION:
        raise ValueError(f"is of span format {version}; this grpo-doctor reads {layout.VERSION}")
    if sizes != [layout.HEADER_BYTES, layout.SEGMENT_BYTES, layout.SEGMENT_RECORDS]:
        raise ValueError("is damaged: the sizes in its header are not those of its format")
    state = memoryview(data)[layout.STATE_OFFSET : layout.THREADS_OFFSET].cast("Q")
    names = _names(data, state[layout.STATE_NAMES])
    threads, open_spans, begun_ns = _threads(data, names)
    return Header(
        pid=pid,
        rank=rank,
        start_monotonic_ns=monotonic,
        start_unix_ns=unix,
        dropped=state[layout.STATE_DROPPED],
        segments=state[layout.STATE_SEGMENTS],
        name_overflow=state[layout.STATE_NAME_OVERFLOW],
        closed_ns=state[layout.STATE_CLOSED_NS],
        errors=state[layout.STATE_ERRORS],
        step=state[layout.STATE_STEP] - 1 if state[layout.STATE_STEP] else None,
        names=names,
        threads=threads,
        open_spans=open_spans,
        begun_ns=begun_ns,
    )


def _names(data: bytes, count: int) -> tuple[str, ...]:
    names: list[str] = []
    offset = layout.NAMES_OFFSET
    for _ in range(count):
        if offset + layout.NAME_LENGTH.size > len(data):
            break
        (length,) = layout.NAME_LENGTH.unpack_from(data, offset)
        offset += layout.NAME_LENGTH.size
        names.append(data[offset : offset + length].decode("utf-8", "replace"))
        offset += length
    return tuple(names)


def name_of(names: tuple[str, ...], name_id: int) -> str:
    """Return a name by its id; ids begin at 1, and 0 means that the table was full."""
    return names[name_id - 1] if 0 < name_id <= len(names) else "(unnamed)"


def _threads(
    data: bytes, names: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[OpenSpan, ...], tuple[int, ...]]:
    threads: list[str] = []
    open_spans: list[OpenSpan] = []
    begun_ns = [0] * layout.THREAD_SLOTS
    for slot in range(layout.THREAD_SLOTS):
        offset = layout.THREADS_OFFSET + slot * layout.THREAD_BYTES
        _, name = layout.THREAD_INFO.unpack_from(data, offset)
        threads.append(name.rstrip(b"\0").decode("utf-8", "replace"))
        stack = data[offset + layout.THREAD_INFO.size : offset + layout.THREAD_BYTES]
        if stack == _NOTHING_OPEN:
            continue  # as most slots; the loop below is ten times longer
        words = memoryview(stack).cast("Q")
        begun_ns[slot] = max(words[::2])  # of a span that has ended only the mark is cleared
        for level in range(layout.THREAD_DEPTH):
            start_ns, mark = words[2 * level], words[2 * level + 1]
            if mark:
                open_spans.append(_open_span(names, slot, start_ns, mark))
    return tuple(threads), tuple(open_spans), tuple(begun_ns)


def _open_span(names: tuple[str, ...], slot: int, start_ns: int, mark: int) -> OpenSpan:
    kind = mark >> layout.KIND_SHIFT
    name, _, args = name_of(names, mark & layout.NAME_MASK).partition(layout.ARGS_SEPARATOR)
    sequence = mark >> layout.THREAD_SHIFT & layout.SEQUENCE_MASK if kind in _COLLECTIVES else 0
    return OpenSpan(name, start_ns, slot, args, kind, sequence)


def rank_facts(path: Path) -> dict[str, Any] | None:
    """Return what a recorder wrote of its process, with its `host` and `pid`; None where that is
    half written, or not a recorder's."""
    try:
        if path.stat().st_size > _MOST_FACTS_BYTES:
            return None
        content = json.loads(path.read_bytes())
        known = isinstance(content["host"], str) and isinstance(content["pid"], int)
        return dict(content) if known else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
