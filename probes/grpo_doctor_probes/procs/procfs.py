"""Small reads of /proc and /sys, each in the fewest system calls that its file allows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

_LIMIT_BYTES = 1 << 20
_CHUNK_BYTES = 65536
_SOCKET = "socket:["


def read(path: str | os.PathLike[str], limit_bytes: int = _LIMIT_BYTES) -> bytes:
    """Return the start of a file, at most `limit_bytes`. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        chunks = []
        remaining = limit_bytes
        while remaining > 0 and (chunk := os.read(descriptor, min(remaining, _CHUNK_BYTES))):
            chunks.append(chunk)
            remaining -= len(chunk)
        return b"".join(chunks)
    finally:
        os.close(descriptor)


def read_record(path: str | os.PathLike[str]) -> bytes:
    """A file of one record: one read, for what is read of a thousand threads. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _CHUNK_BYTES)
    finally:
        os.close(descriptor)


def link(path: str) -> str:
    """Where a link of /proc points to, raw; empty where it is hidden, or the process has gone."""
    try:
        return os.readlink(path)  # noqa: PTH115 - Path would normalise it
    except OSError:
        return ""


def content(path: str | os.PathLike[str]) -> bytes:
    """A file of /proc or /sys; empty where it is hidden, missing, or the process has gone."""
    try:
        return read(path)
    except OSError:
        return b""


def numbers(folder: str | os.PathLike[str]) -> list[int]:
    """The entries that are numbers, in order: processes, threads, descriptors. Raises OSError."""
    names = os.listdir(folder)  # noqa: PTH208 - thousands of them: names only, ten times cheaper
    return sorted(int(name) for name in names if name.isdigit())


def status(folder: str | os.PathLike[str]) -> dict[str, str]:
    """Return the lines of the `status` file of a process or thread; {} where it can't be read."""
    try:
        text = read(os.path.join(folder, "status")).decode("utf-8", "replace")  # noqa: PTH118
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.split("\n"))
    return {name: value.strip() for name, _, value in lines}


def variables(environ: bytes) -> dict[str, str]:
    """The variables of a process's `environ` file: NUL-separated `NAME=value`, environ(5)."""
    entries = (os.fsdecode(entry).partition("=") for entry in environ.split(b"\0"))
    return {name: value for name, equals, value in entries if equals}


def own_number(folder: str | os.PathLike[str]) -> int | None:
    """The number by which a process knows itself, which in a pid namespace of its own is not ours.

    None where it can't be read, as of one that has gone.
    """
    words = status(folder).get("NSpid", "").split()
    return int(words[-1]) if words and words[-1].isdigit() else None


def descriptors(
    proc: str | os.PathLike[str], pid: int, at_most: int | None = None
) -> Iterator[tuple[int, str]]:
    """Return the open descriptors of a process, lowest first, each with what it points to.

    Raises:
        OSError: they may not be listed, or the process has gone.
    """
    folder = f"{proc}/{pid}/fd"
    return _targets(folder, numbers(folder)[:at_most])


def socket_inodes(targets: Iterable[str]) -> Iterator[str]:
    """The numbers of the sockets among what descriptors point to, as in the tables of sockets."""
    return (target[len(_SOCKET) : -1] for target in targets if target.startswith(_SOCKET))


def _targets(folder: str, fds: list[int]) -> Iterator[tuple[int, str]]:
    for number in fds:
        try:
            yield number, os.readlink(f"{folder}/{number}")  # noqa: PTH115 - not always a path
        except OSError:  # closed meanwhile
            continue
