"""Shared memory that tensor-parallel engines of vLLM's CPU build leave behind when they are killed.

An engine inside the ranks names it by their numbers alone, and does not start where there is some.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - vLLM's choice


def remove_for_rank(first: int, size: int, member: int, folder: Path = SHARED_MEMORY) -> None:
    """Removes what is in the way of one rank of an engine inside the ranks.

    Each rank removes where it will write itself: the others may be further on already.

    Args:
        first: the first rank of the engine.
        size: how many ranks it has.
        member: this rank's number among them.
        folder: where shared memory is.
    """
    ranks = "-".join(str(rank) for rank in range(first, first + size))
    ending = f"-[{ranks}]-cpushm_{member}"
    paths = [path for path in folder.glob("-tp:*") if path.name.endswith(ending)]
    mapped = _mapped_files() if paths else set()
    for path in paths:
        if str(path) not in mapped:  # who makes shared memory maps it at once
            with suppress(OSError):  # another user's
                path.unlink()


def _mapped_files() -> set[str]:
    paths: set[str] = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):  # it has ended, or is another user's
            lines = maps.read_text(encoding="utf-8", errors="replace").splitlines()
            paths.update(line.split(maxsplit=5)[-1] for line in lines)
    return paths
