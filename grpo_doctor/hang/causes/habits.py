"""Which ranks took a way through their collectives that nobody took before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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


def odd_way(
    recordings: Recordings, ranks: Iterable[int]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The few ranks that, since the last collective that all have called, called others than the
    rest, and what the rest called. Who called less of the same is merely behind.

    Groups are left aside: each rank may have its own for the same purpose. Empty where the ranks
    are not clearly divided.
    """
    found = {rank: one.entries for rank in ranks if (one := recordings.of(rank)) is not None}
    if len(found) < 3:
        return (), ()
    shared = set.intersection(*({_key(e) for e in entries} for entries in found.values()))
    ways = {rank: _since(entries, shared) for rank, entries in found.items()}
    usual = max(ways.values(), key=lambda way: (len(way), _followers(ways, way), way))
    odd = tuple(sorted(rank for rank, way in ways.items() if usual[: len(way)] != way))
    return (odd, usual) if odd and 2 * len(odd) < len(ways) else ((), ())


def _followers(ways: dict[int, tuple[str, ...]], usual: tuple[str, ...]) -> int:
    return sum(usual[: len(way)] == way for way in ways.values())


def _key(entry: Entry) -> tuple[str, int, str]:
    return entry.group, entry.sequence, entry.op


def _since(entries: Sequence[Entry], shared: set[tuple[str, int, str]]) -> tuple[str, ...]:
    """What a rank called after the last that all have called."""
    last = max((i for i, e in enumerate(entries) if _key(e) in shared), default=-1)
    return tuple(entry.op for entry in entries[last + 1 :])


def _step(entry: Entry) -> Step:
    return entry.group, entry.op, entry.input_sizes


def _parts(way: list[Step], length: int) -> Iterable[tuple[Step, ...]]:
    return (tuple(way[i : i + length]) for i in range(len(way) - length + 1))
