"""What a group's collectives were before, and what that makes the next one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from grpo_doctor.hang.model.matching.signatures import Signatures
from grpo_doctor.hang.model.matching.tracks import Track

LONGEST_CONTEXT = 24
T = TypeVar("T")


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
    usual = {sequence: most(by_rank.values()) for sequence, by_rank in calls.items()}
    return History(calls, usual, first_made)


def most(numbers: Iterable[int]) -> int:
    """The most frequent number, the smallest of equally frequent ones."""
    counted = Counter(numbers)
    if len(counted) == 1:
        return next(iter(counted))
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
    length = 0
    while ago + length < len(past) and length < LONGEST_CONTEXT:
        if past[length] != past[ago + length]:
            break
        length += 1
    return length
