"""Which ranks took a way through their collectives that nobody took before."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_doctor.hang.dumps import Entry, Recordings

Step = tuple[str, str, tuple[tuple[int, ...], ...]]
LONGEST = 4  # collectives; a longer way is new in every step that differs in its data
_FEWEST = 12


def strayed(recordings: Recordings, ranks: Iterable[int]) -> frozenset[int]:
    """Of these ranks, those whose last few collectives never came in this order before.

    The shortest order that tells some ranks from the others decides; empty where none does.
    """
    ways = {
        rank: [_step(entry) for entry in found.entries]
        for rank in ranks
        if (found := recordings.of(rank)) is not None and len(found.entries) >= _FEWEST
    }
    for length in range(2, LONGEST + 1):
        known = {part for way in ways.values() for part in _parts(way[:-1], length)}
        new = frozenset(rank for rank, way in ways.items() if tuple(way[-length:]) not in known)
        if new and len(new) < len(ways):
            return new
    return frozenset()


def _step(entry: Entry) -> Step:
    return entry.group, entry.op, entry.input_sizes


def _parts(way: list[Step], length: int) -> Iterable[tuple[Step, ...]]:
    return (tuple(way[i : i + length]) for i in range(len(way) - length + 1))
