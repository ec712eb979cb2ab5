"""What a call's arguments point to, read from this process's own memory."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from grpo_doctor_probes.look.syscalls import path_at, polled, selected

PROC = Path("/proc")
PAGE = os.sysconf("SC_PAGE_SIZE")


def test_what_is_polled(tmp_path: Path) -> None:
    rows = ((0, 0x1, 0), (-1, 0x1, 0), (7, 0x4, 0), (8, 0x5, 0), (9, 0x40, 0), (3, 0x1, 0))
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "mem").write_bytes(b"".join(struct.pack("ihh", *row) for row in rows))
    assert polled(tmp_path, 7, 0, 5) == [
        (0, True, False), (7, False, True), (8, True, True), (9, True, False),
    ]  # fmt: skip


def test_both_sets_of_a_select(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "mem").write_bytes(bytes([0, 0b101, 0b11, 0b100, 0b10]))
    both = [(0, True, False), (2, True, True), (8, True, False), (9, True, True)]
    assert selected(tmp_path, 7, 10, (1, 3)) == both
    assert selected(tmp_path, 7, 10, (0, 3)) == [(2, False, True), (9, False, True)]


@pytest.mark.parametrize(
    ("before_the_end", "text", "expected"),
    [
        (10, b"/a/lock\0", b"/a/lock"),
        (PAGE, b"/a/lock\0", b"/a/lock"),
        (1, b"\0", b""),
        (PAGE + 5, b"/a/lock\0", b"/a/lock"),  # over the end of the page before
        (PAGE + 100, b"x" * (PAGE + 100), b"x" * 4096),
        (PAGE, b"x" * PAGE, b"x" * 4096),
    ],
)
def test_a_path_is_read_up_to_the_end_of_memory_and_no_further(
    tmp_path: Path, before_the_end: int, text: bytes, expected: bytes
) -> None:
    start = 4 * PAGE - before_the_end
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "mem").write_bytes(bytes(start) + text.ljust(before_the_end, b"x"))
    assert path_at(tmp_path, 7, start) == expected


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, []),
        (1, [0]),
        (8, [0, 7]),
        (9, [0, 7, 8]),
        (1024, [0, 7, 8, 1023]),
        (4096, [0, 7, 8, 1023]),
    ],
)
def test_a_select_is_about_descriptors_below_its_count(
    tmp_path: Path, count: int, expected: list[int]
) -> None:
    (tmp_path / "7").mkdir()
    bits = (1 << 0 | 1 << 7 | 1 << 8 | 1 << 1023 | 1 << 1024).to_bytes(512, "little")
    (tmp_path / "7" / "mem").write_bytes(bytes(8) + bits)
    assert selected(tmp_path, 7, count, (8, 0)) == [(fd, True, False) for fd in expected]


@pytest.mark.parametrize(
    ("count", "expected"), [(0, 0), (1, 1), (256, 256), (257, 256), (1 << 31, 256)]
)
def test_of_very_many_polled_descriptors_the_first(
    tmp_path: Path, count: int, expected: int
) -> None:
    (tmp_path / "7").mkdir()
    rows = b"".join(struct.pack("ihh", fd, 1, 0) for fd in range(300))
    (tmp_path / "7" / "mem").write_bytes(rows)
    assert [fd for fd, _, _ in polled(tmp_path, 7, 0, count)] == list(range(expected))
