"""A library as the loader has put it into memory: two pages, with few exported names or one."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from grpo_doctor_probes.memory.elf import gnu_hash

LOAD, DYNAMIC, NOTE = 1, 2, 4
SYMTAB, STRTAB, HASH = 6, 5, 0x6FFFFEF5
AT = {DYNAMIC: 0x1000, HASH: 0x1200, SYMTAB: 0x1300, STRTAB: 0x1400}
HEADER_BYTES = 56
SIZE = 0x2000
X86_64 = 62


def heading(
    segments: Sequence[tuple[int, int]], dynamic_bytes: int, entry_bytes: int = HEADER_BYTES
) -> bytes:
    """A header, and one of each segment: its kind and its own address."""
    facts = (3, X86_64, 1, 0, 64, 0, 0, 64, entry_bytes, len(segments))
    head = struct.pack("<16sHHIQQQIHHH", b"\x7fELF\x02\x01", *facts)
    sizes = {DYNAMIC: dynamic_bytes}
    return head.ljust(64, b"\0") + b"".join(
        struct.pack("<IIQQQQQQ", kind, 4, 0, address, 0, sizes.get(kind, 0), sizes.get(kind, 0), 0)
        for kind, address in segments
    )


def hash_table(name: str, first: int = 1, buckets: int = 1, words: int = 1) -> bytes:
    """One in which `name` is the first symbol, and the only one."""
    hashed = gnu_hash(name.encode())
    bits = 1 << hashed % 64 | 1 << (hashed >> 5) % 64
    return struct.pack("<4IQII", buckets, first, words, 5, bits, first, hashed | 1)


def library_at(
    start: int,
    name: str = "work",
    value: int = 0x123,
    *,
    own: int = 0x4000,
    relocated: bool = True,
    table: bytes | None = None,
    segments: Sequence[tuple[int, int]] | None = None,
    entry_bytes: int = HEADER_BYTES,
) -> bytes:
    """Its memory from `start` on, where `name` is at `start` + `value`.

    Args:
        start: where it is in its process.
        name: what it exports.
        value: where that is, from its start.
        own: its first address before it is loaded.
        relocated: glibc has loaded it, not musl.
        table: another hash table than that of `name`.
        segments: others than those of a library.
        each: the size of a program header, as its header says.
    """
    base = own & ~0xFFF
    entries = {}
    for tag in (STRTAB, SYMTAB, HASH):
        entries[tag] = AT[tag] + (start if relocated else base)
    dynamic = b"".join(struct.pack("<QQ", tag, at) for tag, at in entries.items())
    dynamic += bytes(16)
    rows = segments
    if rows is None:
        rows = ((NOTE, 0), (LOAD, own), (DYNAMIC, base + AT[DYNAMIC]))
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 2, 0, 7, base + value, 8)
    content = bytearray(SIZE)
    for at, part in (
        (0, heading(rows, len(dynamic), entry_bytes)),
        (AT[DYNAMIC], dynamic),
        (AT[HASH], hash_table(name) if table is None else table),
        (AT[SYMTAB], symbols),
        (AT[STRTAB], b"\0" + name.encode() + b"\0"),
    ):
        content[at : at + len(part)] = part
    return bytes(content)
