"""Where a call into a process returns to, found in what the process has mapped."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor_probes.flight.injection import RefusedError, find_bare_return, find_return_code
from grpo_doctor_probes.flight.x86_64 import X8664
from grpo_doctor_probes.memory.access import Mapping
from tests.unit.probes.memory.small_library import FINI, SIZE, library_at

CODE, BARE = X8664().return_code, X8664().bare_return
LIBC = "/lib/x86_64-linux-gnu/libc.so.6"


class Held:
    """Memory with some parts."""

    def __init__(self, contents: dict[int, bytes]) -> None:
        self._parts = contents

    def read(self, address: int, size: int) -> bytes:
        for start, part in self._parts.items():
            if start <= address <= start + len(part) - size:
                return part[address - start : address - start + size]
        raise OSError("nothing there")


def memory_of(contents: dict[int, bytes]) -> Any:
    return Held(contents)


def mapping(start: int, size: int, rights: str = "r-xp", path: str = LIBC, offset: int = 0) -> Any:
    return Mapping(start, start + size, rights, offset, 1, path)


@pytest.mark.parametrize("at", [0, 5, 0x1000 - len(CODE)])
def test_the_end_of_a_signal_handler_is_in_the_code_of_the_c_library(at: int) -> None:
    code = (bytes(at) + CODE).ljust(0x1000, b"\x90")
    memory = memory_of({0x10000: CODE.ljust(0x1000, b"\0"), 0x20000: code, 0x30000: code})
    maps = (
        mapping(0x10000, 0x1000, "r--p"),  # data that look like it
        mapping(0x30000, 0x1000, path="/lib/other.so"),
        mapping(0x20000, 0x1000),
    )
    assert find_return_code(X8664(), maps, memory) == 0x20000 + at


def test_a_c_library_without_it_is_refused() -> None:
    memory = memory_of({0x20000: bytes(0x1000)})
    with pytest.raises(RefusedError, match=r"no way back found in libc\.so\.6"):
        find_return_code(X8664(), (mapping(0x20000, 0x1000),), memory)


def with_fini(start: int, before: bytes) -> bytes:
    """A library that ends with this code and a bare return."""
    content = bytearray(library_at(start, tags={FINI: 0x4500}))  # 0x500 from its start
    content[0x500 : 0x500 + len(before) + len(BARE)] = before + BARE
    return bytes(content)


@pytest.mark.parametrize("before", [b"", b"\x90" * 4, b"\x90" * (32 - len(BARE))], ids=len)
def test_a_bare_return_is_how_a_library_ends(before: bytes) -> None:
    memory = memory_of({0x10000: with_fini(0x10000, before)})
    maps = (mapping(0x10000, SIZE, "r--p"),)
    assert find_bare_return(X8664(), maps, memory) == 0x10500 + len(before)


def test_a_bare_return_that_comes_later_is_none_of_its_end() -> None:
    memory = memory_of({0x10000: with_fini(0x10000, b"\x90" * (33 - len(BARE)))})
    assert find_bare_return(X8664(), (mapping(0x10000, SIZE),), memory) == 0


def test_only_files_from_their_beginning_are_looked_into() -> None:
    contents = {start: with_fini(start, b"") for start in (0x10000, 0x20000, 0x30000)}
    contents[0x40000] = library_at(0x40000)  # runs nothing last
    contents[0x50000] = b"no library".ljust(SIZE)
    maps = [
        mapping(0x10000, SIZE, path="", offset=0),
        mapping(0x10000, SIZE, path="[vdso]"),
        mapping(0x20000, SIZE, offset=0x1000),
        mapping(0x40000, SIZE),
        mapping(0x50000, SIZE),
        mapping(0x60000, SIZE),  # gone meanwhile
    ]
    assert find_bare_return(X8664(), maps, memory_of(contents)) == 0
    assert (
        find_bare_return(X8664(), [*maps, mapping(0x30000, SIZE)], memory_of(contents)) == 0x30500
    )
