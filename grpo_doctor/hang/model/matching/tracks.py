"""What ranks did in one process group, and what that makes the next collective."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from grpo_doctor.hang.dumps import Entry, Status
from grpo_doctor.hang.dumps.entries import GIVES_UP
from grpo_doctor.hang.model.matching.signatures import Signatures

LONGEST_CONTEXT = 24
T = TypeVar("T")


@dataclass(slots=True)
class Track:
    """The collectives of a rank in a group, by sequence number; several entries are one coalesced
    collective. `last` is the newest that the ring still has, `unfinished` those of them that are
    not done, oldest first. `counter`: what its counter had for the last that
    was called, collective or transfer. `counts`: its counters, which lag behind, are all
    is left of what was called. `busy`: something of it is unfinished, not known what.
    """

    rank: int
    status: Status
    calls: dict[int, tuple[Entry, ...]] = field(default_factory=dict)
    unfinished: list[int] = field(default_factory=list)
    p2p: list[Entry] = field(default_factory=list)
    counts: bool = True
    busy: bool = False
    last: int | None = None
    counter: int = -1

    @property
    def mixed(self) -> bool:
        """Return whether its group has transfers too: then counters count both and show little."""
        return bool(self.p2p) or any(parts[0].p2p_sequence for parts in self.calls.values())

    @property
    def ring_lacks_newest(self) -> bool:
        """Whether its counter is ahead of a ring that keeps what is done. gloo records no transfer
        and counts them. A device's counter may be ahead of its ring by what was just given.
        """
        newest = self.calls.get(self.last, ()) if self.last is not None else ()
        by_host = bool(newest) and all(part.backend not in GIVES_UP for part in newest)
        keeps_done = any(part.done for parts in self.calls.values() for part in parts)
        return by_host and keeps_done and self.status.completed > (self.last or 0)

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

    @property
    def timed_out(self) -> bool:
        """Whether the watchdog gave up on its oldest unfinished collective."""
        parts = self.calls.get(self.front, ()) if self.front is not None else ()
        return any(entry.timed_out for entry in parts)

    def done(self, sequence: int) -> bool:
        """Whether the rank called this one and is through."""
        reached = self.enqueued
        if reached is None or sequence > reached or sequence in self.unfinished:
            return False
        return sequence in self.calls or self.front is None or sequence < self.front


def track(rank: int, entries: Sequence[Entry], status: Status, *, counts: bool = True) -> Track:
    """Sorts a rank's entries of one group into collectives and point-to-point operations."""
    made = Track(rank, status, counts=counts, counter=status.enqueued)
    calls = made.calls
    for entry in entries:
        if entry.is_p2p:
            made.p2p.append(entry)
        else:
            calls[entry.sequence] = (*calls.get(entry.sequence, ()), entry)
    made.unfinished = sorted(
        number for number, parts in calls.items() if not all(part.done for part in parts)
    )
    made.last = max(calls, default=None)
    return made


@dataclass(frozen=True, slots=True)
class History:
    """The calls of each collective of a group: `calls` by sequence number and rank, `usual` the one
    that most ranks made, `first_made` where each call first was. Numbers of calls are those of
    `Signatures`.
    """

    calls: Mapping[int, Mapping[int, int]]
    usual: Mapping[int, int]
    first_made: Mapping[int, int]

    def expected(self, sequence: int, *before: int) -> int | None:
        """The call that earlier rounds had at this point: of all earlier places that were reached
        the same way, the one with the longest way in common, the latest of those.

        `before` are calls that come between the recorded ones and this one, the latest first.
        """
        past = list(before)
        number = sequence - 1 - len(before)
        while number in self.usual:
            past.append(self.usual[number])
            number -= 1
        return continuation(past)

    def new(self, call: int, sequence: int) -> bool:
        """Whether no rank made this call before this collective, of a group that made others."""
        earliest = min(self.calls, default=sequence)
        return earliest < sequence <= self.first_made.get(call, sequence)


def history(tracks: Mapping[int, Track], signatures: Signatures) -> History:
    """Reads all collectives of a group."""
    calls: dict[int, dict[int, int]] = {}
    for rank, track in tracks.items():
        for sequence, parts in track.calls.items():
            calls.setdefault(sequence, {})[rank] = signatures.call(parts)
    first_made: dict[int, int] = {}
    for sequence in sorted(calls):
        for call in calls[sequence].values():
            first_made.setdefault(call, sequence)
    usual = {sequence: most_frequent(by_rank.values()) for sequence, by_rank in calls.items()}
    return History(calls, usual, first_made)


def most_frequent(numbers: Iterable[int]) -> int:
    """The most frequent number, the smallest of equally frequent ones."""
    counted = Counter(numbers)
    return min(counted, key=lambda n: (-counted[n], n))


def continuation(past: Sequence[T]) -> T | None:
    """What followed when things went before as they went now. `past` has the latest first."""
    best: T | None = None
    length = 0
    for ago in range(1, len(past)):
        common = _common(past, ago)
        if common > length:
            best, length = past[ago - 1], common
        if length >= LONGEST_CONTEXT:
            break
    return best


def _common(past: Sequence[object], ago: int) -> int:
    """How far back the ways to now and to `ago` are the same."""
    longest = min(len(past) - ago, LONGEST_CONTEXT)
    return next((n for n in range(longest) if past[n] != past[ago + n]), longest)
