"""Arguments of blocked calls in a process's memory: paths, polled and selected descriptors."""

from __future__ import annotations

import ctypes
import mmap
import os
import select
import struct
from pathlib import Path

import pytest

from grpo_doctor_probes.look.syscalls import path_at, polled, selected

PROC = Path("/proc")


class Memory:
    """Two pages of this process, of which the second may be taken away."""

    def __init__(self) -> None:
        self.pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.pages))

    def put(self, at: int, content: bytes) -> int:
        self.pages[at : at + len(content)] = content
        return self.address + at


@pytest.mark.parametrize("before_the_end", [1, 5, 9, 100, mmap.PAGESIZE])
def test_a_path_may_lie_across_two_pages(before_the_end: int) -> None:
    memory = Memory()
    address = memory.put(mmap.PAGESIZE - before_the_end, b"/a/lock\0/another")
    assert path_at(PROC, os.getpid(), address) == b"/a/lock"


def test_polled_descriptors_with_what_each_is_polled_for() -> None:
    entries = [(3, select.POLLIN), (-1, select.POLLIN), (4, select.POLLOUT), (5, 0)]
    content = b"".join(struct.pack("=ihh", fd, events, 0) for fd, events in entries)
    address = Memory()
    at = address.put(64, content)
    assert polled(PROC, os.getpid(), at, 4) == [
        (3, True, False),
        (4, False, True),
        (5, False, False),
    ]
    assert polled(PROC, os.getpid(), at, 1) == [(3, True, False)]


def test_selected_descriptors_of_two_sets() -> None:
    memory = Memory()
    reading = memory.put(0, (1 << 3 | 1 << 9).to_bytes(8, "little"))
    writing = memory.put(64, (1 << 9 | 1 << 12).to_bytes(8, "little"))
    selection = [(3, True, False), (9, True, True), (12, False, True)]
    assert selected(PROC, os.getpid(), 13, (reading, writing)) == selection
    assert selected(PROC, os.getpid(), 12, (reading, writing)) == selection[:2]
    assert selected(PROC, os.getpid(), 13, (reading, 0)) == [(3, True, False), (9, True, False)]
