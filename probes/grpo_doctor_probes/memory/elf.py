"""Where a loaded library has a function, read from the memory of the process itself.

The dynamic symbol table is part of what the loader maps, so no file is opened: this works the same
for a container's process, another mount namespace and a library that was replaced or deleted.
About ten reads of a few bytes each (0.1 ms), so nothing is cached between ranks.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile

Read = Callable[[int, int], bytes]  # (address, bytes): as many as asked for, or OSError

MACHINE_NAMES = {62: "x86_64", 183: "aarch64"}
_ELF64_LITTLE = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<16sHHIQQQIHHH")  # struct Elf64_Ehdr up to e_phnum
_SEGMENT = struct.Struct("<IIQQQQQQ")
_PAIR = struct.Struct("<QQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_LOAD, _DYNAMIC = 1, 2
_PLAIN = (0, 1, 2)  # none, data, function; not 10, whose address is of code that chooses one
_DT_STRTAB, _DT_SYMTAB, _DT_GNU_HASH = 5, 6, 0x6FFFFEF5
_MAX_CHAIN = 10_000  # of one hash bucket; real libraries have a handful


class ElfError(Exception):
    """The memory is not a 64-bit little-endian library with a symbol hash table."""


@dataclass(frozen=True)
class Library:
    """A loaded library: `bias` is what to add to its own addresses; `machine` is its ELF number."""

    read: Read
    bias: int
    machine: int
    symbols: int
    strings: int
    hashes: int

    def address_of(self, name: str) -> int | None:
        """Return the address of exported code or data in the process, None if there is none."""
        symbol = name.encode()
        hashed = gnu_hash(symbol)
        buckets, first, words, shift = struct.unpack("<4I", self.read(self.hashes, 16))
        if not buckets or not words:
            return None
        bloom = self.hashes + 16
        (word,) = struct.unpack("<Q", self.read(bloom + 8 * (hashed // 64 % words), 8))
        if not (word >> hashed % 64) & (word >> (hashed >> shift) % 64) & 1:
            return None
        chains = bloom + 8 * words + 4 * buckets
        at = bloom + 8 * words + 4 * (hashed % buckets)
        (index,) = struct.unpack("<I", self.read(at, 4))
        if index < first:
            return None
        for position in range(index, index + _MAX_CHAIN):
            (entry,) = struct.unpack("<I", self.read(chains + 4 * (position - first), 4))
            if entry | 1 == hashed | 1 and (value := self._value(position, symbol)):
                return value
            if entry & 1:
                return None
        return None

    def _value(self, index: int, symbol: bytes) -> int | None:
        """Return the address of symbol `index` if it has that name and is defined here."""
        raw = self.read(self.symbols + _SYMBOL.size * index, _SYMBOL.size)
        name, info, _visibility, section, value, _size = _SYMBOL.unpack(raw)
        if not section or info & 15 not in _PLAIN:
            return None
        data = self.read(self.strings + name, len(symbol) + 1)
        return self.bias + value if data == symbol + b"\0" else None


def gnu_hash(name: bytes) -> int:
    """Return the hash of `DT_GNU_HASH`: 32 bits, h * 33 + c from 5381."""
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def library(read: Read, start: int) -> Library:
    """Return the library whose first mapped page is at `start`.

    Raises:
        ElfError: it is none that this can read.
        OSError: its memory can't be read.
    """
    raw = read(start, _HEADER.size)
    ident, _, machine, _, _, offset, _, _, _, entry_bytes, count = _HEADER.unpack(raw)
    if not ident.startswith(_ELF64_LITTLE):
        raise ElfError("is not a 64-bit little-endian ELF library")
    if entry_bytes != _SEGMENT.size or count > 64:
        raise ElfError("has damaged program headers")
    table = read(start + offset, entry_bytes * count)
    segments = [_SEGMENT.unpack_from(table, entry_bytes * n) for n in range(count)]
    loads = [address for kind, _, _, address, *_ in segments if kind == _LOAD]
    dynamic = next((segment for segment in segments if segment[0] == _DYNAMIC), None)
    if not loads or dynamic is None:
        raise ElfError("has no dynamic section")
    bias = start - (min(loads) & ~0xFFF)
    _, _, _, address, _, _, size, _ = dynamic
    raw = read(bias + address, min(size, 65536))
    pairs = _PAIR.iter_unpack(raw[: len(raw) - len(raw) % _PAIR.size])
    entries: dict[int, int] = {}  # tag: value, up to its end mark
    for tag, value in takewhile(lambda pair: pair[0], pairs):
        entries.setdefault(tag, value)
    tables = [entries.get(tag) for tag in (_DT_SYMTAB, _DT_STRTAB, _DT_GNU_HASH)]
    if None in tables:
        raise ElfError("has no GNU symbol hash table")
    # glibc rewrites these entries to addresses when it loads the library; musl and the vdso do not.
    symbols, strings, hashes = (at if at >= bias else at + bias for at in tables if at is not None)
    return Library(read, bias, machine, symbols, strings, hashes)
