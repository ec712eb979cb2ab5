"""Everything that blame is derived from, in one place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from grpo_doctor.hang.model.matching.camps import camps_of
from grpo_doctor.hang.model.matching.families import Families
from grpo_doctor.hang.model.matching.groups import Gathered
from grpo_doctor.hang.model.matching.history import History, continuation
from grpo_doctor.hang.model.matching.meetings import Meeting, Waiting
from grpo_doctor.hang.model.matching.model import Camp, Shift, Wait
from grpo_doctor.hang.model.matching.pairs import sides
from grpo_doctor.hang.model.matching.queues import UNKNOWN, Order, Queue, Unit, order_of
from grpo_doctor.hang.model.matching.ruling import Blame
from grpo_doctor.hang.model.matching.signatures import Signatures

RECENT = 400  # calls of a rank in a group, in which a round repeats if it ever does
LEAST_ROUNDS = 2  # to say what each round had


@dataclass(slots=True)
class Scene:
    """Groups by `Group.key`, queues by rank, and what was found in them."""

    gathered: Mapping[str, Gathered]
    pasts: Mapping[str, History]
    signatures: Signatures
    families: Families
    heard: frozenset[int]
    queues: Mapping[int, Queue]
    waiting: Waiting = field(init=False)
    hung: tuple[Blame, ...] = ()
    waits: tuple[Wait, ...] = ()
    shifts: tuple[Shift, ...] = ()
    _camps: dict[Meeting, tuple[tuple[Camp, ...], bool]] = field(default_factory=dict)

    def title(self, key: str) -> str:
        """A group in words."""
        known = self.gathered.get(key)
        return known.group.title() if known is not None else "group that only a counter tells of"

    def camps(self, meeting: Meeting) -> tuple[Camp, ...]:
        """Who called what in an operation, the side taken as right first."""
        return self.sides(meeting)[0]

    def sides(self, meeting: Meeting) -> tuple[tuple[Camp, ...], bool]:
        """The same, and whether which side is right is open."""
        if meeting.ends is not None:
            return (), False
        if meeting not in self._camps:
            past = self.pasts[meeting.group]
            camps, even = camps_of(
                meeting.number,
                self.gathered[meeting.group],
                past,
                self.signatures,
                self.families.usual(meeting.group, meeting.number),
            )
            self._camps[meeting] = self._told_apart(meeting, camps) if even else (camps, even)
        return self._camps[meeting]

    def _told_apart(
        self, meeting: Meeting, camps: tuple[Camp, ...]
    ) -> tuple[tuple[Camp, ...], bool]:
        """The camps of those in step as one, which is right; unchanged where that tells nothing."""
        ranks = {rank for camp in camps for rank in camp.ranks}
        right = self._in_step(meeting, ranks)
        if not right or right == ranks:
            return camps, True
        wrong = [camp for camp in camps if right.isdisjoint(camp.ranks)]
        first = next(camp for camp in camps if not right.isdisjoint(camp.ranks))
        rest = ranks.difference(*(camp.ranks for camp in wrong))
        return (Camp(first.signature, tuple(sorted(rest))), *wrong), not wrong

    def _in_step(self, meeting: Meeting, ranks: set[int]) -> set[int]:
        """Those that had called as many collectives of this kind before they came to something else
        as most who came to that.
        """
        for unit in (unit for rank in sorted(ranks) for unit in self.queues[rank].units):
            if unit.transfer or unit.group == meeting.group:
                continue
            counts = {
                rank: count
                for rank in self.gathered[unit.group].tracks
                if (count := self._called_before(rank, meeting.group, unit)) is not None
            }
            usual = Counter(counts.values()).most_common(2)
            if not counts.keys() >= ranks or (len(usual) > 1 and usual[0][1] == usual[1][1]):
                continue
            right = {rank for rank in ranks if counts[rank] == usual[0][0]}
            if right and right != ranks:
                return right
        return set()

    def _called_before(self, rank: int, key: str, unit: Unit) -> int | None:
        """How many collectives of this kind of group a rank had called when it came to `unit`."""
        own = self.families.of(rank, key)
        came = self.given(rank, unit.group, unit.number)
        called = self.gathered[own].tracks[rank].enqueued if own is not None else None
        if called is None or came is None or came == UNKNOWN:
            return None
        later = (one for one in self.queues[rank].units if one.group == own and one.order > came)
        return called - sum(not one.transfer for one in later)

    def given(self, rank: int, key: str, number: int) -> Order | None:
        """When a rank called a collective; before all others where only that it did is known."""
        track = self.gathered[key].tracks.get(rank)
        if track is None:
            return None
        if number in track.calls:
            return order_of(track.calls[number][0])
        return UNKNOWN if track.done(number) else None

    def novel(self, wait: Wait) -> bool:
        """Whether nobody had made this call, from this line, in this group before."""
        past = self.pasts[wait.group]
        mine = past.calls.get(wait.sequence, {}).get(wait.rank)
        if mine is None or wait.why == "p2p":
            return False
        return past.new(mine, wait.sequence)

    def as_before(self, wait: Wait) -> bool | None:
        """Whether the rank, over all its groups, came to this call as in earlier rounds. None where
        they do not tell, or where it is the usual call from another line.
        """
        made: list[tuple[int, str, int]] = []
        for key, past in self.pasts.items():
            track = self.gathered[key].tracks.get(wait.rank)
            for number, parts in list(track.calls.items())[-RECENT:] if track else ():
                created = parts[0].created_ns or 0
                made.append((created, key, past.calls[number][wait.rank]))
        made.sort(reverse=True)
        mine = self.pasts[wait.group].calls.get(wait.sequence, {}).get(wait.rank)
        if wait.since_ns is None or mine is None:
            return None
        order = [(key, call) for created, key, call in made if created < wait.since_ns]
        usual = continuation(order)
        if usual is None or usual[0] == wait.group:
            return True if usual == (wait.group, mine) else None
        return False

    def latest(self, rank: int) -> tuple[str, int] | None:
        """The group and number of the last collective that a rank called."""
        made = [
            (track.calls[track.last][0].created_ns or 0, key, track.last)
            for key, one in self.gathered.items()
            if (track := one.tracks.get(rank)) is not None and track.last is not None
        ]
        return max(made)[1:] if made else None

    def left_out(self, rank: int, key: str, sequence: int, awaited: Wait) -> bool:
        """Whether a rank came to a collective of its own without the send or receive that `awaited`
        is for, which it never did in earlier rounds.
        """
        past, track = self.pasts[key].calls, self.gathered[key].tracks[rank]
        mine = past.get(sequence, {}).get(rank)
        if mine is None:
            return False
        rounds = [
            parts[0].created_ns or 0
            for number, parts in sorted(track.calls.items())
            if number < sequence and past[number][rank] == mine
        ]
        if len(rounds) <= LEAST_ROUNDS:
            return False
        made = self._transfers(rank, awaited)
        reached = track.calls[sequence][0].created_ns or 0
        now = sum(rounds[-1] < at < reached for at in made)
        return all(sum(a < at < b for at in made) > now for a, b in pairwise(rounds))

    def _transfers(self, rank: int, awaited: Wait) -> list[int]:
        """When the rank did what `awaited` is for, all times that its ring holds."""
        receives = awaited.operation.startswith("receive")
        ends = (rank, awaited.rank) if receives else (awaited.rank, rank)
        group = self.gathered[awaited.group]
        own = {one: track for one, track in group.tracks.items() if one == rank}
        side = sides(replace(group, tracks=own), "send" if receives else "recv").get(ends)
        return [entry.created_ns or 0 for entry in side.entries] if side is not None else []
