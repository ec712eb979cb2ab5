"""Arguments of a blocked call that are in the memory of its process: a path, a set of descriptors.

Reading takes the target's memory lock for a moment and stops nothing; it is bounded in time, since
a process that hangs inside a page fault can hold that lock.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from grpo_doctor_probes.bounded import within
from grpo_doctor_probes.memory.access import Memory

_PATH_BYTES = 4096
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_AT_MOST_S = 1.0
_POLLFD = struct.Struct("ihh")
_READABLE, _WRITABLE = 0x41, 0x4  # POLLIN | POLLRDNORM, POLLOUT
_MOST_POLLED = 256


def path_at(proc: Path, pid: int, address: int) -> bytes:
    """The string at `address`, without its end mark. Raises OSError, or TimeoutError."""
    here = min(_PATH_BYTES, _PAGE_BYTES - address % _PAGE_BYTES)
    text = _bytes_at(proc, pid, address, here)
    if b"\0" not in text and here < _PATH_BYTES:
        text += _bytes_at(proc, pid, address + here, _PATH_BYTES - here)
    return text.partition(b"\0")[0]


def polled(proc: Path, pid: int, address: int, count: int) -> list[tuple[int, bool, bool]]:
    """`(descriptor, for reading, for writing)` of a poll call. Raises OSError or TimeoutError."""
    data = _bytes_at(proc, pid, address, _POLLFD.size * min(count, _MOST_POLLED))
    whole = data[: len(data) // _POLLFD.size * _POLLFD.size]
    return [
        (fd, bool(events & _READABLE), bool(events & _WRITABLE))
        for fd, events, _ in _POLLFD.iter_unpack(whole)
        if fd >= 0
    ]


def selected(
    proc: Path, pid: int, count: int, addresses: tuple[int, ...]
) -> list[tuple[int, bool, bool]]:
    """The same of a select call; `addresses` of its first two sets, 0 for none."""
    size = (min(count, 1024) + 7) // 8
    sets = [_bytes_at(proc, pid, one, size) if one else bytes(size) for one in addresses]
    reading, writing = (int.from_bytes(one, "little") for one in sets)
    return [
        (fd, bool(reading >> fd & 1), bool(writing >> fd & 1))
        for fd in range(min(count, 1024))
        if (reading | writing) >> fd & 1
    ]


def _bytes_at(proc: Path, pid: int, address: int, size: int) -> bytes:
    def ask() -> bytes:
        with Memory(pid, proc) as memory:
            return memory.read(address, size)

    return within(_AT_MOST_S, ask)
