"""What is mapped, with names that try to confuse, and reads that come up short."""

from __future__ import annotations

import ctypes
import os

import pytest

from grpo_doctor_probes.memory.access import Memory, parse_maps

HOSTILE = (
    "7f00-7f10 r-xp 00000000 fe:01 12   /tmp/a b\\012x\r\x85) (deleted)\n"
    "7f10-7f20 rw-p 00010000 00:00 0 \n"
    "not a line\n"
    "7fffff00-7fffff80 rw-p 00000000 00:00 0                          [stack]\n"
)


def test_names_may_hold_anything_but_a_newline() -> None:
    first, second, stack = parse_maps(HOSTILE)
    assert first.path == "/tmp/a b\\012x\r\x85) (deleted)"
    assert first.name == "a b\\012x\r\x85)"
    assert (first.start, first.end, first.rights, first.inode) == (0x7F00, 0x7F10, "r-xp", 12)
    assert (second.path, second.offset) == ("", 0x10000)
    assert stack.path == "[stack]"


def test_memory_is_read() -> None:
    buffer = ctypes.create_string_buffer(b"before", 16)
    with Memory(os.getpid()) as memory:
        assert memory.read(ctypes.addressof(buffer), 6) == b"before"


def test_an_address_that_is_not_there_is_an_error() -> None:
    with Memory(os.getpid()) as memory:
        with pytest.raises(OSError, match="Input/output error"):
            memory.read(16, 1)
        with pytest.raises(OSError, match="no address 0xffff"):
            memory.read(0xFFFF << 48, 1)
