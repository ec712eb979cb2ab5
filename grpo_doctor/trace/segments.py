"""The segments of a span file, whether its process still writes them or not."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
