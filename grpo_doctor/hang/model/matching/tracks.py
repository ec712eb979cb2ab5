"""What one rank did in one process group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from grpo_doctor.hang.dumps import Entry, Status
from grpo_doctor.hang.model.matching.model import Seat


@dataclass(slots=True)
class Track:
    """The collectives of a rank in a group, by sequence number; several entries are one coalesced
    collective. `first` and `last` are the oldest and newest that the ring still has, `unfinished`
    those of them that are not done, oldest first. `given`: what its counter said of the last that
    was called, collective or transfer. `counts`: its counters, which lag behind, are all
    that is left of what was called. `busy`: something of it is unfinished, nobody knows what.
    """

    rank: int
    status: Status
    calls: dict[int, tuple[Entry, ...]] = field(default_factory=dict)
    unfinished: list[int] = field(default_factory=list)
    p2p: list[Entry] = field(default_factory=list)
    counts: bool = True
    busy: bool = False
    first: int | None = None
    last: int | None = None
    given: int = -1

    @property
    def mixed(self) -> bool:
        """Whether its group has transfers too: then the counters count both and tell little."""
        return bool(self.p2p) or any(parts[0].p2p_sequence for parts in self.calls.values())

    @property
    def enqueued(self) -> int | None:
        """The last sequence number that the rank called, None for none known."""
        counted = self.status.enqueued if self.status.enqueued >= 0 else None
        if self.last is None or counted is None:
            return counted if self.last is None else self.last
        return max(self.last, counted)

    @property
    def front(self) -> int | None:
        """The oldest that is called and not done; from the counters where the ring lost it."""
        if self.unfinished:
            return self.unfinished[0]
        if not self.counts:
            return None
        lost = not self.calls and -1 < self.status.completed < self.status.enqueued
        return self.status.completed + 1 if lost else None

    def done(self, sequence: int) -> bool:
        """Whether the rank called this one and is through."""
        reached = self.enqueued
        if reached is None or sequence > reached or sequence in self.unfinished:
            return False
        return sequence in self.calls or self.front is None or sequence < self.front

    def seat(self) -> Seat:
        """How far it is."""
        front = self.front
        enqueued = self.enqueued
        parts = self.calls.get(front, ()) if front is not None else ()
        return Seat(
            rank=self.rank,
            enqueued=enqueued,
            done=enqueued if front is None else front - 1,
            first=self.first,
            waiting_since_ns=parts[0].created_ns if parts else None,
            timed_out=any(entry.timed_out for entry in parts),
        )


def track(rank: int, entries: Sequence[Entry], status: Status, *, counts: bool = True) -> Track:
    """Sorts a rank's entries of one group into collectives and point-to-point operations."""
    made = Track(rank, status, counts=counts)
    calls = made.calls
    for entry in entries:
        if entry.is_p2p:
            made.p2p.append(entry)
        else:
            before = calls.get(entry.sequence)
            calls[entry.sequence] = (entry,) if before is None else (*before, entry)
    made.unfinished = sorted(
        number for number, parts in calls.items() if not all(part.done for part in parts)
    )
    made.first, made.last = min(calls, default=None), max(calls, default=None)
    return made
