"""Reads a span file's records into columns, whatever state its process left it in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from grpo_doctor_probes import layout
from grpo_doctor_probes.live import Header, parse_header
from numpy.typing import NDArray

from grpo_doctor.errors import TraceError

_RECORD = np.dtype(
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
assert _RECORD.itemsize == layout.RECORD_BYTES
_LAST_KIND = layout.CUDA_SPAN


@dataclass(frozen=True, slots=True)
class SpanRecords:
    """A span file: its header and its intact records in the order in which they were written.

    `damaged` counts records that were begun and not completed, or make no sense.
    """

    header: Header
    records: NDArray[np.void]
    damaged: int
    truncated: bool


def read_span_file(path: Path) -> SpanRecords:
    """Reads the whole file.

    Raises:
        TraceError: it can't be read or its header is damaged; the message names file and reason.
    """
    try:
        data = path.read_bytes()
        header = parse_header(data[: layout.HEADER_BYTES])
    except (OSError, ValueError) as problem:
        raise TraceError(f"{path}: {problem}. This process is left out of the trace.") from problem
    segments = _segments(data)
    expected = header.segments
    rows = [records for _, records in sorted(segments, key=lambda item: item[0])]
    records: NDArray[Any] = np.concatenate(rows) if rows else np.empty(0, dtype=_RECORD)
    written = records[records["kind"] != 0]
    sound = (
        (written["kind"] <= _LAST_KIND)
        & (written["end_ns"] >= written["start_ns"])
        & (written["start_ns"] > 0)
        & (written["name"] <= len(header.names))
    )
    return SpanRecords(
        header=header,
        records=written[sound],
        damaged=int(len(written) - np.count_nonzero(sound)),
        truncated=len(segments) < expected,
    )


def _segments(data: bytes) -> list[tuple[int, NDArray[Any]]]:
    """(sequence, records) of every segment that is there, a cut-off last one included."""
    segments = []
    for offset in range(layout.HEADER_BYTES, len(data), layout.SEGMENT_BYTES):
        body = data[offset : offset + layout.SEGMENT_BYTES]
        if len(body) < layout.SEGMENT_HEADER_BYTES:
            continue
        magic, sequence = layout.SEGMENT_HEADER.unpack_from(body)
        if magic != layout.SEGMENT_MAGIC:
            continue
        count = (len(body) - layout.SEGMENT_HEADER_BYTES) // layout.RECORD_BYTES
        records = np.frombuffer(body, _RECORD, count, layout.SEGMENT_HEADER_BYTES)
        segments.append((sequence, records))
    return segments
