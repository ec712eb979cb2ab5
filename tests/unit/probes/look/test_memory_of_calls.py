"""What a call's arguments point to, read from this process's own memory."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_doctor_probes.look.syscalls import path_at, polled, selected

PROC = Path("/proc")
PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def pages() -> Iterator[tuple[mmap.mmap, int]]:
    """Two pages that can be read and one behind them that cannot; the address of the first."""
    memory = mmap.mmap(-1, 3 * PAGE)
    view = ctypes.c_char.from_buffer(memory)
    start = ctypes.addressof(view)
    libc = ctypes.CDLL(None, use_errno=True)
    third = ctypes.c_void_p(start + 2 * PAGE)
    assert libc.mprotect(third, ctypes.c_size_t(PAGE), 0) == 0
    yield memory, start
    libc.mprotect(third, ctypes.c_size_t(PAGE), mmap.PROT_READ | mmap.PROT_WRITE)
    del view
    memory.close()


@pytest.mark.parametrize(
    ("offset", "text"),
    [
        (0, b"/data/train.jsonl"),
        (0, b""),
        (PAGE - 5, b"/data/train.jsonl"),  # over the end of a page
        (2 * PAGE - 18, b"/data/train.jsonl"),  # up to the end of what can be read
    ],
)
def test_a_path_ends_at_its_mark_wherever_it_lies(
    pages: tuple[mmap.mmap, int], offset: int, text: bytes
) -> None:
    memory, start = pages
    memory[offset : offset + len(text) + 1] = text + b"\0"
    assert path_at(PROC, os.getpid(), start + offset) == text


def test_a_path_without_an_end_is_cut_off(pages: tuple[mmap.mmap, int]) -> None:
    memory, start = pages
    memory[: 2 * PAGE] = b"x" * (2 * PAGE)
    text = path_at(PROC, os.getpid(), start + 7)
    assert text == b"x" * len(text)
    assert 1000 < len(text) < 2 * PAGE


def test_what_is_polled(pages: tuple[mmap.mmap, int]) -> None:
    memory, start = pages
    rows = ((0, 0x1, 0), (-1, 0x1, 0), (7, 0x4, 0), (8, 0x5, 0), (9, 0x40, 0), (3, 0x1, 0))
    for number, row in enumerate(rows):
        memory[8 * number : 8 * number + 8] = struct.pack("ihh", *row)
    assert polled(PROC, os.getpid(), start, 5) == [
        (0, True, False),
        (7, False, True),
        (8, True, True),
        (9, True, False),
    ]


def test_what_is_selected(pages: tuple[mmap.mmap, int]) -> None:
    memory, start = pages
    memory[0:2], memory[16:18] = bytes([0b101, 0b11]), bytes([0b100, 0b10])
    pid = os.getpid()
    selection = [(0, True, False), (2, True, True), (8, True, False), (9, True, True)]
    assert selected(PROC, pid, 10, (start, start + 16)) == selection
    assert selected(PROC, pid, 9, (start, start + 16)) == selection[:3]
    assert selected(PROC, pid, 10, (0, start + 16)) == [(2, False, True), (9, False, True)]


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
    ("count", "expected"), [(0, 0), (1, 1), (256, 256), (257, 256), (1 << 31, 256)]
)
def test_of_very_many_polled_descriptors_the_first(
    tmp_path: Path, count: int, expected: int
) -> None:
    (tmp_path / "7").mkdir()
    rows = b"".join(struct.pack("ihh", fd, 1, 0) for fd in range(300))
    (tmp_path / "7" / "mem").write_bytes(rows)
    assert [fd for fd, _, _ in polled(tmp_path, 7, 0, count)] == list(range(expected))


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
