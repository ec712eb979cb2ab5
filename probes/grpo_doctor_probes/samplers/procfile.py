"""Small files of /proc and /sys, kept open: a read is then one system call, without a path walk."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_CHUNK_BYTES = 65536


class ProcFile:
    """One file, opened once and read from its start each time.

    An open /proc/<pid> file belongs to that process for good: when the number is given to another
    process, reads fail with ESRCH and never show the newcomer. Errors are OSError.
    """

    def __init__(self, path: Path | str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> bytes:
        """The whole content now. The kernel hands out long files in pieces of a page or more."""
        pieces = []
        offset = 0
        while piece := os.pread(self._descriptor, _CHUNK_BYTES, offset):
            pieces.append(piece)
            offset += len(piece)
        return b"".join(pieces)

    def read_start(self) -> bytes:
        """The first piece, for files that are one record: saves the call that finds the end."""
        return os.pread(self._descriptor, _CHUNK_BYTES, 0)

    def close(self) -> None:
        """Close it; once only."""
        os.close(self._descriptor)


class Rate:
    """A growing counter as a rate per second."""

    def __init__(self) -> None:
        self._previous: tuple[int, float] | None = None

    def per_s(self, now_ns: int, total: float) -> float | None:
        """The rate since the previous call; None at the first, and where the counter fell."""
        previous, self._previous = self._previous, (now_ns, total)
        if previous is None or now_ns <= previous[0] or total < previous[1]:
            return None
        return (total - previous[1]) * 1e9 / (now_ns - previous[0])
