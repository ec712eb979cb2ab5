"""What a process has mapped: its program and libraries, and its environment as it is now."""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_probes.discover.scan import Process, parse_environment
from grpo_doctor_probes.memory.access import Mapping, Memory, mapped
from grpo_doctor_probes.memory.elf import ElfError, library

_TORCH_LIBRARY = re.compile(r"/torch/lib/libtorch(?:_cpu|_python|_cuda)?\.so$")
_ENVIRON_SYMBOLS = ("environ", "__environ")
_C_LIBRARY = re.compile(r"/(?:libc\.so\.6|libc-2\.\d+\.so|ld-musl-[^/]*|libc\.musl-[^/]*)$")
_POINTER_BYTES = 8
_MOST_VARIABLES = 2000
_LONGEST_BYTES = 512  # of those we want, the longest is a path
_PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class File:
    """A mapped file and the lowest address where it begins."""

    path: str
    start: int


Modules = Sequence[File]  # that a process has mapped from their beginning: program and libraries


def has_torch(modules: Modules) -> bool:
    """Return whether libtorch is mapped."""
    return any(_TORCH_LIBRARY.search(file.path) for file in modules)


def read_modules(proc: Path, pid: int) -> Modules | None:
    """From /proc/PID/maps; None where that is refused, or the process has gone."""
    with contextlib.suppress(OSError):
        return modules_of(mapped(pid, proc))
    return None


def modules_of(mappings: Iterable[Mapping]) -> Modules:
    """Return the files among all that is mapped."""
    starts: dict[str, int] = {}
    for mapping in mappings:
        if mapping.offset == 0 and mapping.path.startswith("/"):
            starts.setdefault(mapping.path.removesuffix(" (deleted)"), mapping.start)
    return [File(path, start) for path, start in starts.items()]


def live_environment(proc: Path, pid: int, pointers: Sequence[int]) -> dict[str, str]:
    """Return the variables of `scan.WANTED`; empty if its memory can't be read or has none.

    The process may change them while we read: what does not parse is left out.

    /proc/PID/environ is what the process was started with: RANK set later, by a forked rank or a
    Ray actor with `os.environ[...] = ...`, is not in it, and setproctitle(3) overwrites it. What
    Python sets goes through putenv(3), so it is in the array that the C library's `environ` points
    to.
    """
    with contextlib.suppress(OSError), Memory(pid, proc) as memory:
        for pointer in pointers:
            if variables := _variables(memory, pointer):
                return variables
    return {}


def environ_pointers(proc: Path, process: Process, modules: Modules) -> tuple[int, ...]:
    """Where `environ` may be: in a program that took it over by a copy relocation, else in libc.

    The same in all processes that were forked from one another.
    """
    pointers: list[int] = []
    with contextlib.suppress(OSError), Memory(process.pid, proc) as memory:
        for file in modules:
            if file.path == process.executable or _C_LIBRARY.search(file.path):
                with contextlib.suppress(OSError, ElfError, struct.error):
                    symbols = map(library(memory.read, file.start).address_of, _ENVIRON_SYMBOLS)
                    pointers += [address for address in symbols if address is not None][:1]
    return tuple(pointers)


def _variables(memory: Memory, address: int) -> dict[str, str]:
    try:
        array = int.from_bytes(memory.read(address, _POINTER_BYTES), "little")
    except OSError:
        return {}
    entries: list[bytes] = []
    for pointer in _array(memory, array) if array else ():
        with contextlib.suppress(OSError):
            entries.append(memory.text(pointer, _LONGEST_BYTES))
    return parse_environment(b"\0".join(entries))


def _array(memory: Memory, array: int) -> list[int]:
    """Return the pointers up to a zero, read by pages: its end may be the end of the mapping."""
    pointers: list[int] = []
    while len(pointers) < _MOST_VARIABLES:
        size = (_PAGE_BYTES - array % _PAGE_BYTES) // _POINTER_BYTES * _POINTER_BYTES
        try:
            values = struct.unpack(f"<{size // _POINTER_BYTES}Q", memory.read(array, size))
        except OSError:
            return pointers
        if 0 in values or not values:
            return pointers + list(values[: values.index(0)] if values else ())
        pointers.extend(values)
        array += size
    return pointers
