"""Terminals: files by their path, but no storage."""

from __future__ import annotations

_PATHS = ("/dev/pts/", "/dev/tty", "/dev/console", "/dev/ptmx")


def is_terminal(path: str) -> bool:
    """Whether a descriptor with this path waits for a person, not for a disk."""
    return path.startswith(_PATHS)
