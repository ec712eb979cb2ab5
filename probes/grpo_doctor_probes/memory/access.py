"""The bytes of another process's memory."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import TypeVar

_Self = TypeVar("_Self", bound="Memory")


class Memory:
    """The memory of a process, to read. Opening it asks for the same right as tracing does."""

    _flags = os.O_RDONLY

    def __init__(self, pid: int, proc: Path = Path("/proc")) -> None:
        """Opens the memory of `pid`. Raises OSError: no such process, or no right to."""
        self._file = os.open(proc / str(pid) / "mem", self._flags | os.O_CLOEXEC)

    def __enter__(self: _Self) -> _Self:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes it."""
        os.close(self._file)

    def read(self, address: int, size: int) -> bytes:
        """`size` bytes from `address`. Raises OSError where not all of them are there."""
        parts, at = [], address
        while at < address + size:
            try:
                part = os.pread(self._file, address + size - at, at)
            except OverflowError as error:  # what a program has as an address may be any number
                raise OSError(f"there is no address {at:#x}") from error
            if not part:
                raise OSError(f"the process has no memory at {at:#x}")
            parts.append(part)
            at += len(part)
        return b"".join(parts)


class WritableMemory(Memory):
    """The memory of a process, to read and write."""

    _flags = os.O_RDWR

    def write(self, address: int, data: bytes) -> None:
        """Writes `data` at `address`. Raises OSError where not all of it fits."""
        if os.pwrite(self._file, data, address) != len(data):
            raise OSError(f"the process has no memory for {len(data)} bytes at {address:#x}")
