"""Finding functions in libraries that a process has loaded, by its memory alone."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator

import pytest

from grpo_doctor_probes.memory.access import Memory, mapped
from grpo_doctor_probes.memory.elf import ElfError, Library, gnu_hash, library


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
        wanted = (
            ctypes.addressof(address)
            if address is not None
            else ctypes.cast(loaded[name], ctypes.c_void_p).value
        )
        assert libc.address_of(name) == wanted, name


@pytest.mark.parametrize("name", ["", "no_such_function", "getpi", "getpidd", "x" * 4000])
def test_what_is_not_there_is_not_found(libc: Library, name: str) -> None:
    assert libc.address_of(name) is None


def test_a_function_chosen_at_run_time_is_not_called_by_its_chooser(libc: Library) -> None:
    assert libc.address_of("strlen") is None


def test_the_hash_is_that_of_the_format() -> None:
    # Values of the examples in the description of DT_GNU_HASH by its author.
    assert [gnu_hash(text) for text in (b"", b"printf", b"exit")] == [
        0x1505,
        0x156B2BB8,
        0x7C967E3F,
    ]


@pytest.mark.parametrize(
    "header",
    [b"MZ" + bytes(62), b"\x7fELF\x01\x01" + bytes(58), b"\x7fELF\x02\x02" + bytes(58)],
    ids=["not ELF", "32 bits", "big-endian"],
)
def test_what_is_no_library_of_ours_is_refused(header: bytes) -> None:
    with pytest.raises(ElfError, match="not a 64-bit"):
        library(lambda _address, size: header[:size], 0x1000)


def test_a_library_without_a_table_is_refused() -> None:
    header = b"\x7fELF\x02\x01".ljust(54, b"\0") + (56).to_bytes(2, "little") + bytes(8)
    with pytest.raises(ElfError, match="no dynamic section"):
        library(lambda _address, size: header[:size].ljust(size, b"\0"), 0x1000)
