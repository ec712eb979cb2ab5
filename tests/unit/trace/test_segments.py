"""Segments read while their process writes, the moments of each read chosen."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

from grpo_doctor.trace.spanfile import Segment, live_segments, settled_segments
from grpo_doctor_probes.record import layout

_WORD = layout.INSTANT << layout.KIND_SHIFT
_SIZE = layout.HEADER_BYTES + layout.SEGMENT_BYTES


def segment(sequence: int, *rows: tuple[int, int]) -> bytes:
    """A segment's bytes; a row is its start and its last word."""
    content = layout.SEGMENT_HEADER.pack(layout.SEGMENT_MAGIC, sequence)
    content = content.ljust(layout.SEGMENT_HEADER_BYTES, b"\0")
    for start, word in rows:
        content += b"".join(n.to_bytes(8, "little") for n in (start, start, 0, word))
    return content.ljust(layout.SEGMENT_BYTES, b"\0")


class Changing(io.FileIO):
    """A file of one segment that is another one at each read."""

    def __init__(self, folder: Path, *contents: bytes) -> None:
        (folder / "empty").touch()
        super().__init__(folder / "empty")
        self._contents: Iterator[bytes] = iter(contents)

    def read(self, size: int | None = -1, /) -> bytes:
        return next(self._contents)[:size]


def starts(segments: list[Segment]) -> list[int]:
    return [int(start) for s in segments for start in s.records["start_ns"]]


def test_a_record_copied_while_it_was_written_is_read_again(tmp_path: Path) -> None:
    torn, sound = segment(1, (7, _WORD), (0, _WORD)), segment(1, (7, _WORD), (8, _WORD))
    assert starts(live_segments(Changing(tmp_path, torn, sound, sound), _SIZE)) == [7, 8]


def test_a_record_that_was_not_there_at_first_is_left_for_the_next_reading(tmp_path: Path) -> None:
    sound, torn = segment(1, (7, _WORD)), segment(1, (7, _WORD), (0, _WORD))
    assert starts(live_segments(Changing(tmp_path, sound, torn, torn), _SIZE)) == [7]


def test_a_segment_used_again_meanwhile_is_read_again(tmp_path: Path) -> None:
    old, new = segment(1, (7, _WORD)), segment(5, (9, _WORD))
    reads = (old, old, new), (new, new, new)
    segments = live_segments(Changing(tmp_path, *(c for three in reads for c in three)), _SIZE)
    assert (starts(segments), segments[0].sequence) == ([9], 5)


def test_a_segment_being_emptied_is_read_again(tmp_path: Path) -> None:
    old, empty, new = segment(1, (7, _WORD)), bytes(layout.SEGMENT_BYTES), segment(5, (9, _WORD))
    assert starts(live_segments(Changing(tmp_path, old, old, empty, new, new, new), _SIZE)) == [9]


def test_one_that_never_holds_still_is_given_up(tmp_path: Path) -> None:
    contents = [segment(n, (n, _WORD)) for n in range(1, 100)]
    assert live_segments(Changing(tmp_path, *contents), _SIZE) == []


def test_unused_segments_are_none(tmp_path: Path) -> None:
    unused = bytes(layout.SEGMENT_BYTES)
    assert live_segments(Changing(tmp_path, unused, unused, unused), _SIZE) == []
    assert settled_segments(bytes(layout.HEADER_BYTES) + unused) == []


def test_both_ways_find_the_same_in_a_file_at_rest(tmp_path: Path) -> None:
    data = bytes(layout.HEADER_BYTES) + segment(1, (7, _WORD), (0, 0), (8, _WORD))
    data += segment(2, (9, _WORD))[:200]  # cut off
    (tmp_path / "file").write_bytes(data)
    with (tmp_path / "file").open("rb", buffering=0) as file:
        live = live_segments(file, len(data))
    settled = settled_segments(data)
    assert starts(live) == starts(settled) == [7, 8, 9]
    assert [s.whole for s in live] == [s.whole for s in settled] == [True, False]
