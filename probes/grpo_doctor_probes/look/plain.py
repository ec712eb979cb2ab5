"""Small reads of /proc, and text of strangers made fit to print."""

from __future__ import annotations

import os
import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_LIMIT_BYTES = 1 << 20


def read(path: str | os.PathLike[str], limit_bytes: int = _LIMIT_BYTES) -> bytes:
    """The start of a file of /proc or /sys, at most `limit_bytes`. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        pieces = []
        left = limit_bytes
        while left > 0 and (piece := os.read(descriptor, min(left, 65536))):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)
    finally:
        os.close(descriptor)


def read_record(path: str) -> bytes:
    """A file of one record: one read, for what is read of a thousand threads. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 65536)
    finally:
        os.close(descriptor)


def clean(text: bytes | str, limit: int = 200) -> str:
    """`text` without control characters and marks that turn a line around, at most `limit` long."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    # Lone surrogates (undecodable file names) would break whoever writes UTF-8.
    printable = text.encode("utf-8", "replace").decode("utf-8")
    return _CONTROL.sub("?", printable)[:limit]
