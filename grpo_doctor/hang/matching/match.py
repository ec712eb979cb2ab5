"""From recordings to a matching."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_doctor.hang.dumps import Recording, Recordings
from grpo_doctor.hang.matching import groups
from grpo_doctor.hang.matching.blame import blame
from grpo_doctor.hang.matching.groups import gather
from grpo_doctor.hang.matching.history import history
from grpo_doctor.hang.matching.model import Matching, Shift
from grpo_doctor.hang.matching.pairs import unmatched
from grpo_doctor.hang.matching.rhythm import rhythm
from grpo_doctor.hang.matching.scene import Scene
from grpo_doctor.hang.matching.shifts import shifts
from grpo_doctor.hang.matching.signatures import Signatures
from grpo_doctor.hang.matching.standing import standing
from grpo_doctor.hang.matching.waits import cycles, waits


def match(recordings: Recordings, world_size: int | None = None) -> Matching:
    """How far every rank is in every group, who waits for whom, and whom that points at.

    `world_size` None: as many as the recordings name.
    """
    known = [one for one in recordings.ranks if one.rank is not None]
    heard = frozenset(one.rank for one in known if one.rank is not None)
    world = groups.world(recordings, world_size)
    signatures = Signatures()
    gathered = {one.group.key: one for one in gather(recordings, world)}
    pasts = {key: history(one.tracks, signatures) for key, one in gathered.items()}
    standings = tuple(standing(gathered[k], pasts[k], signatures, heard) for k in gathered)
    pairs = tuple(pair for one in gathered.values() for pair in unmatched(one, heard))
    shifted: list[Shift] = []
    for key, one in gathered.items():
        shifted += shifts(one, pasts[key], signatures)
    waiting = waits(standings, gathered, pairs, signatures)
    rings = cycles(waiting)
    scene = Scene(
        gathered, pasts, signatures, heard, standings, pairs, tuple(shifted), waiting, rings
    )
    return Matching(
        standings=standings,
        pairs=pairs,
        shifts=scene.shifts,
        waits=waiting,
        cycles=rings,
        rhythms=tuple(rhythm(one, one.rank, signatures) for one in known if one.rank is not None),
        blame=blame(scene),
        heard=tuple(sorted(heard)),
        world_size=world,
        moved=_moved(known),
        taken_unix_ns=max((one.at_unix_ns for one in known), default=0),
        notes=_notes(recordings),
    )


def _moved(known: Sequence[Recording]) -> bool | None:
    told = [one.moved for one in known if one.moved is not None]
    return any(told) if told else None


def _notes(recordings: Recordings) -> tuple[str, ...]:
    unknown = sum(one.rank is None for one in recordings.ranks)
    notes = [f"{unknown} dumps are of unknown ranks and do not count"] if unknown else []
    if any(one.version == (0, 0) and one.entries for one in recordings.ranks):
        notes.append("dumps of torch 2.2 do not tell groups apart that ranks number alike")
    return tuple(notes)
