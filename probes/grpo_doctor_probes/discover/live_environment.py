"""The environment of a process as it is now, read out of its memory without stopping it.

/proc/PID/environ is what the process was started with: RANK set later, by a forked rank or a Ray
actor with `os.environ[...] = ...`, is not in it, and setproctitle(3) overwrites it. What Python
sets goes through putenv(3), so it is in the array that the C library's `environ` points to.
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Sequence
from pathlib import Path

from grpo_doctor_probes.discover.modules import Modules
from grpo_doctor_probes.discover.scan import Process, parse_environment
from grpo_doctor_probes.memory.access import Memory
from grpo_doctor_probes.memory.elf import ElfError, library

_NAMES = ("environ", "__environ")
_C_LIBRARY = re.compile(r"/(?:libc\.so\.6|libc-2\.\d+\.so|ld-musl-[^/]*|libc\.musl-[^/]*)$")
_POINTER_BYTES = 8
_MOST_VARIABLES = 2000
_LONGEST_BYTES = 512  # of those we want, the longest is a path
_PAGE_BYTES = 4096


def live_environment(proc: Path, pid: int, pointers: Sequence[int]) -> dict[str, str]:
    """The variables of `scan.WANTED`; empty where its memory may not be read or is no C program's.

    The process may change them while we read: what does not parse is left out.
    """
    with contextlib.suppress(OSError), Memory(pid, proc) as memory:
        for pointer in pointers:
            if found := _variables(memory, pointer):
                return found
    return {}


def environ_pointers(proc: Path, process: Process, modules: Modules) -> tuple[int, ...]:
    """Where `environ` may be: in a program that took it over by a copy relocation, else in libc.

    The same in all processes that were forked from one another.
    """
    found = []
    with contextlib.suppress(OSError), Memory(process.pid, proc) as memory:
        for file in modules.files:
            if file.path == process.executable or _C_LIBRARY.search(file.path):
                addresses = (_address_of(memory, file.start, name) for name in _NAMES)
                found += [address for address in addresses if address is not None][:1]
    return tuple(found)


def _address_of(memory: Memory, start: int, name: str) -> int | None:
    try:
        return library(memory.read, start).address_of(name)
    except (OSError, ElfError, struct.error):
        return None


def _variables(memory: Memory, address: int) -> dict[str, str]:
    try:
        array = int.from_bytes(memory.read(address, _POINTER_BYTES), "little")
    except OSError:
        return {}
    entries = (_text(memory, pointer) for pointer in _array(memory, array)) if array else ()
    return parse_environment(b"\0".join(entries))


def _array(memory: Memory, array: int) -> list[int]:
    """The pointers up to a zero, read by pages: its end may be the end of the mapping."""
    found: list[int] = []
    while len(found) < _MOST_VARIABLES:
        size = (_PAGE_BYTES - array % _PAGE_BYTES) // _POINTER_BYTES * _POINTER_BYTES
        try:
            values = struct.unpack(f"<{size // _POINTER_BYTES}Q", memory.read(array, size))
        except OSError:
            return found
        if 0 in values or not values:
            return found + list(values[: values.index(0)] if values else ())
        found.extend(values)
        array += size
    return found


def _text(memory: Memory, address: int) -> bytes:
    """The string at `address`, cut where it is long."""
    first = min(_LONGEST_BYTES, _PAGE_BYTES - address % _PAGE_BYTES)
    try:
        text = memory.read(address, first)
        if b"\0" not in text and first < _LONGEST_BYTES:
            text += memory.read(address + first, _LONGEST_BYTES - first)
    except OSError:
        return b""
    return text.partition(b"\0")[0]
