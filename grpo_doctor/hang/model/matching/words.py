"""The wording of ranks and times."""

from __future__ import annotations

from collections.abc import Iterable

MOST_LISTED = 8


def ranks_text(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0, 1 and 3`, `ranks 0-6`, `ranks 0, 2, 4, ... and 62 (32 ranks)`."""
    ordered = sorted(ranks)
    if len(ordered) == 1:
        return f"rank {ordered[0]}"
    if len(ordered) > 2 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"ranks {ordered[0]}-{ordered[-1]}"
    if len(ordered) > MOST_LISTED:
        listed = ", ".join(map(str, ordered[:3]))
        return f"ranks {listed}, ... and {ordered[-1]} ({len(ordered)} ranks)"
    return f"ranks {', '.join(map(str, ordered[:-1]))} and {ordered[-1]}" if ordered else "no rank"


def seconds_text(nanoseconds: int) -> str:
    """`0.4 s`, `12 s`, `31 min`."""
    seconds = nanoseconds / 1e9
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
