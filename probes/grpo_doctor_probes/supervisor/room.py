"""Where evidence can be kept: a job may well hang because the disk of its run directory is full."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

# A bundle takes under 1 MB a rank, and is written beside the one it replaces.
_PER_RANK_BYTES = 2 << 20


def made_with_room(folder: Path, ranks: int) -> Path | None:
    """Makes `folder`, or one among temporary files where its disk has no room for a bundle of so
    many ranks; None where those have none either. The user alone may read it."""
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _has_room(folder, ranks):
            return folder
        folder.rmdir()  # kept where something is in it
    with contextlib.suppress(OSError):
        if _has_room(Path(tempfile.gettempdir()), ranks):
            return Path(tempfile.mkdtemp(prefix="grpo-doctor-hang-"))
    return None


def _has_room(folder: Path, ranks: int) -> bool:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize >= ranks * _PER_RANK_BYTES
