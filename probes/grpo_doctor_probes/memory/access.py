"""The memory of another process: what is mapped where, and its bytes."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

_LINE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) \S+ (\d+) *(.*)")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_Self = TypeVar("_Self", bound="Memory")


@dataclass(frozen=True)
class Mapping:
    """A line of /proc/PID/maps. `path` is as the process sees it, empty for anonymous memory."""

    start: int
    end: int
    rights: str
    offset: int
    inode: int
    path: str

    @property
    def name(self) -> str:
        """The file's name without its folders, and without the mark of a deleted file."""
        return self.path.removesuffix(" (deleted)").rpartition("/")[2]


def parse_maps(text: str) -> tuple[Mapping, ...]:
    """Return the mappings in the text of /proc/PID/maps, by address."""
    # Not splitlines: a hostile file name may hold \r or \x85.
    matches = (_LINE.fullmatch(line) for line in text.split("\n"))
    return tuple(
        Mapping(int(m[1], 16), int(m[2], 16), m[3], int(m[4], 16), int(m[5]), m[6])
        for m in matches
        if m
    )


def mapped(pid: int, proc: Path = Path("/proc")) -> tuple[Mapping, ...]:
    """Return what process `pid` has mapped. Raises OSError where it is gone or may not be read."""
    return parse_maps((proc / str(pid) / "maps").read_text("utf-8", "surrogateescape"))


class Memory:
    """The memory of a process, to read. Opening it asks for the same right as tracing does."""

    def __init__(self, pid: int, proc: Path = Path("/proc")) -> None:
        """Open the memory of `pid`. Raises OSError: no such process, or no right to."""
        self._file = os.open(proc / str(pid) / "mem", os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self: _Self) -> _Self:
        """Itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close it."""
        os.close(self._file)

    def text(self, address: int, limit: int) -> bytes:
        """Return the string at `address`, without its end mark, cut where it is longer than that.

        Raises OSError where nothing is there.
        """
        size = min(limit, _PAGE_BYTES - address % _PAGE_BYTES)  # up to the end of its page
        text = self.read(address, size)
        if b"\0" not in text and size < limit:
            text += self.read(address + size, limit - size)
        return text.partition(b"\0")[0]

    def read(self, address: int, size: int) -> bytes:
        """`size` bytes from `address`. Raises OSError where not all of them are there."""
        chunks, at = [], address
        while at < address + size:
            try:
                chunk = os.pread(self._file, address + size - at, at)
            except OverflowError as error:  # what a program has as an address may be any number
                raise OSError(f"there is no address {at:#x}") from error
            if not chunk:
                raise OSError(f"the process has no memory at {at:#x}")
            chunks.append(chunk)
            at += len(chunk)
        return b"".join(chunks)
