"""Everything that blame is derived from, in one place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from grpo_doctor.hang.dumps import Recording
from grpo_doctor.hang.model.matching.families import Families
from grpo_doctor.hang.model.matching.graph import Waiting
from grpo_doctor.hang.model.matching.groups import Gathered
from grpo_doctor.hang.model.matching.joint_ops import JointOp
from grpo_doctor.hang.model.matching.model import Blame, Shift, Side, Wait
from grpo_doctor.hang.model.matching.queues import Queue, queues
from grpo_doctor.hang.model.matching.signatures import Signatures
from grpo_doctor.hang.model.matching.tracks import History, Track, history


@dataclass(slots=True)
class MatchContext:
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
    sides: dict[JointOp, tuple[tuple[Side, ...], bool]] = field(default_factory=dict)

    def title(self, key: str) -> str:
        """A group in words."""
        group = self.gathered.get(key)
        return group.group.title() if group is not None else "group known only from a counter"

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
            for key, group in self.gathered.items()
            if (track := group.tracks.get(rank)) is not None and track.last is not None
        ]
        return max(made)[1:] if made else None


def context_of(recordings: Sequence[Recording], gathered: Mapping[str, Gathered]) -> MatchContext:
    """What ranks did in each group, and what is not over."""
    signatures = Signatures()
    pasts = {key: history(group.tracks, signatures) for key, group in gathered.items()}
    tracks: dict[int, dict[str, Track]] = defaultdict(dict)
    for key, merged in gathered.items():
        for rank, track in merged.tracks.items():
            tracks[rank][key] = track
    queued = queues(recordings, tracks)
    return MatchContext(
        gathered=gathered,
        pasts=pasts,
        signatures=signatures,
        families=Families(gathered, pasts, signatures),
        heard=frozenset(queued),
        queues=queued,
    )
