"""Everything that blame is derived from, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from grpo_doctor.hang.model.matching.camps import camps_of
from grpo_doctor.hang.model.matching.families import Families
from grpo_doctor.hang.model.matching.groups import Gathered
from grpo_doctor.hang.model.matching.history import History
from grpo_doctor.hang.model.matching.meetings import Meeting, Waiting
from grpo_doctor.hang.model.matching.model import Camp, Shift, Wait
from grpo_doctor.hang.model.matching.queues import Queue
from grpo_doctor.hang.model.matching.ruling import Blame
from grpo_doctor.hang.model.matching.signatures import Signatures


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
        right = {rank for rank in ranks if not self.is_off(rank, meeting.group)}
        if not right or right == ranks:
            return camps, True
        wrong = [camp for camp in camps if right.isdisjoint(camp.ranks)]
        first = next(camp for camp in camps if not right.isdisjoint(camp.ranks))
        rest = ranks.difference(*(camp.ranks for camp in wrong))
        return (Camp(first.signature, tuple(sorted(rest))), *wrong), not wrong

    def is_off(self, rank: int, key: str | None) -> bool:
        """Whether a rank had called more or fewer collectives of this kind of group, before it came
        to something else, than others of its role; with `key` None, more or fewer transfers.
        """
        units = (unit for unit in self.queues[rank].units if not unit.transfer)
        return any(self.families.out_of_step(u, key) for u in units if u.group != key)

    def latest(self, rank: int) -> tuple[str, int] | None:
        """The group and number of the last collective that a rank called."""
        made = [
            (track.calls[track.last][0].created_ns or 0, key, track.last)
            for key, one in self.gathered.items()
            if (track := one.tracks.get(rank)) is not None and track.last is not None
        ]
        return max(made)[1:] if made else None
