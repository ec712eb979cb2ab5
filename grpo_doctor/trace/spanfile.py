"""Reads a span file's records into columns, whatever state its process left it in."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.bounded import SPANS
from grpo_doctor.errors import TraceError
from grpo_doctor.trace.jsonfile import MAX_TIME_NS
from grpo_doctor_probes.procs.live import Header, parse_header, read_header
from grpo_doctor_probes.record import layout

RECORD = np.dtype(
    [
        ("start_ns", "<i8"),
        ("end_ns", "<i8"),
        ("value", "<f8"),
        ("name", "<u4"),
        ("thread", "<u2"),
        ("depth", "u1"),
        ("kind", "u1"),
    ]
)
assert RECORD.itemsize == layout.RECORD_BYTES
# A segment is read in 50 us and used again after 8,190 records at the earliest.
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Segment:
    """Records in the order of their writing; `whole` unless the file ends within the segment."""

    sequence: int
    records: NDArray[Any]
    whole: bool


def settled_segments(data: bytes) -> list[Segment]:
    """Return every segment of a file's content that is no longer written, a cut-off one included.

    Segments that were allocated and not yet used are zeros and have no magic number.
    """
    starts = range(layout.HEADER_BYTES, len(data), layout.SEGMENT_BYTES)
    segments = (_parse(data, start) for start in starts)
    return [_written(segment, segment.records) for segment in segments if segment]


def live_segments(file: io.FileIO, size: int) -> list[Segment]:
    """Return the same of the open `file`, of `size` bytes, while its process writes into it.

    A copy runs forwards through a record, as its writer does, whose last byte makes it one: a copy
    may hold that byte and not what was written just before. So only records that were complete in
    a first reading are taken, from a second, and of a segment that was not used again meanwhile.
    """
    starts = range(layout.HEADER_BYTES, size, layout.SEGMENT_BYTES)
    segments = (_live(file, start) for start in starts)
    return [segment for segment in segments if segment]


def last_records(path: Path, segments: int = 4) -> NDArray[Any]:
    """Return the records of the last segments that a file's process has begun, in order.

    Raises:
        OSError: the file can't be read.
    """
    with path.open("rb", buffering=0) as file:
        starts = range(layout.HEADER_BYTES, os.fstat(file.fileno()).st_size, layout.SEGMENT_BYTES)
        heads = ((_read(file, start, layout.SEGMENT_HEADER.size), start) for start in starts)
        begun = sorted(
            (sequence, start)
            for head, start in heads
            if len(head) == layout.SEGMENT_HEADER.size
            for magic, sequence in [layout.SEGMENT_HEADER.unpack(head)]
            if magic == layout.SEGMENT_MAGIC
        )
        read = [_live(file, start) for _, start in begun[-segments:]]
    rows = [segment.records for segment in read if segment]
    return np.concatenate(rows) if rows else np.empty(0, dtype=RECORD)


def _live(file: io.FileIO, start: int) -> Segment | None:
    for _ in range(_ATTEMPTS):
        earlier = _parse(_read(file, start, layout.SEGMENT_BYTES), 0)
        if earlier is None:
            return None
        later = _parse(_read(file, start, layout.SEGMENT_BYTES), 0)
        now = _parse(_read(file, start, layout.SEGMENT_HEADER_BYTES), 0)
        if later and now and earlier.sequence == later.sequence == now.sequence:
            return _written(later, earlier.records)
    return None


def _read(file: io.FileIO, start: int, size: int) -> bytes:
    file.seek(start)
    return file.read(size)


def _written(segment: Segment, earlier: NDArray[Any]) -> Segment:
    """Return its records without the places that were empty in an `earlier` reading."""
    complete = earlier["kind"] != 0
    return Segment(segment.sequence, segment.records[: len(earlier)][complete], segment.whole)


def _parse(data: bytes, start: int) -> Segment | None:
    size = min(layout.SEGMENT_BYTES, len(data) - start) - layout.SEGMENT_HEADER_BYTES
    if size < 0:
        return None
    magic, sequence = layout.SEGMENT_HEADER.unpack_from(data, start)
    if magic != layout.SEGMENT_MAGIC:
        return None
    count = size // layout.RECORD_BYTES
    records = np.frombuffer(data, RECORD, count, start + layout.SEGMENT_HEADER_BYTES)
    return Segment(sequence, records, count == layout.SEGMENT_RECORDS)


SPAN_KINDS = range(layout.CUDA_SPAN + 1)
TRAJECTORY_KINDS = range(layout.TRAJECTORY, layout.FACT + 1)
_MAX_BYTES = SPANS.bytes
_MAX_COUNT = 1 << 48


@dataclass(frozen=True, slots=True)
class SpanRecords:
    """A span file: its header and its intact records in the order in which they were written.

    `damaged` counts records that were begun and not completed, or make no sense.
    """

    header: Header
    records: NDArray[np.void]
    damaged: int
    truncated: bool


def read_span_file(path: Path, kinds: range = SPAN_KINDS) -> SpanRecords:
    """Read the whole file, whose records are of these kinds.

    Raises:
        TraceError: it can't be read or its header is damaged; the message names file and reason.
    """
    try:
        header, segments = _content(path)
        _check(header)
    except OSError as problem:
        reason = problem.strerror or problem
        raise TraceError(f"{path}: {reason}. This process is left out of the trace.") from problem
    except ValueError as problem:
        raise TraceError(f"{path} {problem}. This process is left out of the trace.") from problem
    rows = [s.records for s in sorted(segments, key=lambda s: s.sequence)]
    written: NDArray[Any] = np.concatenate(rows) if rows else np.empty(0, dtype=RECORD)
    sound = _sound(written, header, kinds)
    return SpanRecords(
        header=header,
        records=written[sound],
        damaged=int(len(written) - np.count_nonzero(sound)),
        truncated=sum(s.whole for s in segments) < header.segments,
    )


def _content(path: Path) -> tuple[Header, list[Segment]]:
    if not path.is_file():  # opening a named pipe would wait for ever
        raise ValueError("is not a file")
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size > _MAX_BYTES:
            raise ValueError(f"is larger than {_MAX_BYTES >> 30} GiB")
        header = parse_header(file.read(layout.HEADER_BYTES))
        if header.closed_ns:
            file.seek(0)
            return header, settled_segments(file.read())
        segments = live_segments(file, size)
    # Names may have been added while the records were read.
    return replace(header, names=read_header(path).names), segments


def _check(header: Header) -> None:
    if not 0 < header.start_monotonic_ns < MAX_TIME_NS or header.closed_ns > MAX_TIME_NS:
        raise ValueError("is damaged: the times in its header are impossible")
    counts = (header.dropped, header.segments, header.name_overflow, header.errors, header.step)
    if any(count is not None and count > _MAX_COUNT for count in counts):
        raise ValueError("is damaged: the numbers in its header are impossible")


def _sound(records: NDArray[Any], header: Header, kinds: range) -> NDArray[np.bool_]:
    """Return which records are plausible: a disk error or a stray write leaves impossible times."""
    sound: NDArray[np.bool_] = (
        (records["kind"] >= kinds.start)
        & (records["kind"] < kinds.stop)
        & (records["start_ns"] >= header.start_monotonic_ns)
        & (records["end_ns"] >= records["start_ns"])
        & (records["end_ns"] < MAX_TIME_NS)
        & ((records["thread"] < layout.THREAD_SLOTS) | (kinds is TRAJECTORY_KINDS))
        & (records["name"] <= len(header.names))
        & (np.isfinite(records["value"]) | (records["kind"] == layout.COUNTER))
    )
    return sound
