"""What is mapped, and functions in libraries that a process has loaded, by its memory alone."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from typing import Any

import pytest

from grpo_doctor_probes.memory.access import Memory, mapped, parse_maps
from grpo_doctor_probes.memory.elf import ElfError, Library, library
from tests.unit.probes.memory.small_library import (
    DYNAMIC,
    HEADER_BYTES,
    LOAD,
    NOTE,
    X86_64,
    hash_table,
    library_at,
)


@pytest.fixture
def libc() -> Iterator[Library]:
    """This process's own C library."""
    with Memory(os.getpid()) as memory:
        start = next(m.start for m in mapped(os.getpid()) if m.name == "libc.so.6")
        yield library(memory.read, start)


def test_every_function_is_where_the_loader_says(libc: Library) -> None:
    loaded = ctypes.CDLL("libc.so.6")
    for name in ("getpid", "nanosleep", "pthread_mutex_lock", "fopen", "environ"):
        address = ctypes.c_char.in_dll(loaded, name) if name == "environ" else None
        symbol = (
            ctypes.addressof(address)
            if address is not None
            else ctypes.cast(loaded[name], ctypes.c_void_p).value
        )
        assert libc.address_of(name) == symbol, name


@pytest.mark.parametrize("name", ["", "no_such_function", "getpi", "getpidd", "x" * 4000])
def test_what_is_not_there_is_not_found(libc: Library, name: str) -> None:
    assert libc.address_of(name) is None


def test_a_function_chosen_at_run_time_is_not_called_by_its_chooser(libc: Library) -> None:
    assert libc.address_of("strlen") is None


@pytest.mark.parametrize(
    "header",
    [b"MZ" + bytes(62), b"\x7fELF\x01\x01" + bytes(58), b"\x7fELF\x02\x02" + bytes(58)],
    ids=["not ELF", "32 bits", "big-endian"],
)
def test_what_is_no_library_of_ours_is_refused(header: bytes) -> None:
    with pytest.raises(ElfError, match="not a 64-bit"):
        library(lambda _address, size: header[:size], 0x1000)


START = 0x7F00_0000_0000


def small(**made: Any) -> Library:
    """What is read of a small library that is loaded at `START`."""
    content = library_at(START, **made)

    def read(address: int, size: int) -> bytes:
        if not START <= address <= START + len(content) - size:
            raise OSError("nothing there")
        return content[address - START : address - START + size]

    return library(read, START)


@pytest.mark.parametrize("relocated", [True, False], ids=["by glibc", "by musl"])
@pytest.mark.parametrize("own", [0, 0x4000, 0x4F38])
def test_a_library_is_where_it_was_loaded_and_not_where_it_was_linked(
    own: int, relocated: bool
) -> None:
    result = small(own=own, relocated=relocated)
    assert result.machine == X86_64
    assert result.address_of("work") == START + 0x123


@pytest.mark.parametrize(
    ("buckets", "words"), [(0, 1), (1, 0), (0, 0)], ids=["no bucket", "no filter", "neither"]
)
def test_a_hash_table_of_nothing_has_nothing(buckets: int, words: int) -> None:
    assert small(table=hash_table("work", 1, buckets, words)).address_of("work") is None


NEEDED = ((LOAD, 0x4000), (DYNAMIC, 0x5000))


@pytest.mark.parametrize(
    ("count", "entry_bytes", "readable"),
    [
        (2, HEADER_BYTES, True),
        (64, HEADER_BYTES, True),
        (65, HEADER_BYTES, False),
        (2, HEADER_BYTES - 1, False),
        (65, HEADER_BYTES + 1, False),
    ],
)
def test_how_many_program_headers_a_library_has(
    count: int, entry_bytes: int, readable: bool
) -> None:
    segments = [*NEEDED, *[(NOTE, 0)] * (count - len(NEEDED))]
    if readable:
        assert small(segments=segments, entry_bytes=entry_bytes).address_of("work") == START + 0x123
        return
    with pytest.raises(ElfError, match="damaged program headers"):
        small(segments=segments, entry_bytes=entry_bytes)


@pytest.mark.parametrize("segments", [NEEDED[:1], NEEDED[1:], ()], ids=str)
def test_a_library_has_code_and_a_dynamic_section(segments: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ElfError, match="no dynamic section"):
        small(segments=segments)


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
