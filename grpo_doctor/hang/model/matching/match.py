"""From recordings to a matching."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from grpo_doctor.hang.dumps import Recording, Recordings
from grpo_doctor.hang.model.matching import groups
from grpo_doctor.hang.model.matching.blame import blame
from grpo_doctor.hang.model.matching.devices import hung
from grpo_doctor.hang.model.matching.families import Families
from grpo_doctor.hang.model.matching.groups import Gathered, gather
from grpo_doctor.hang.model.matching.history import history
from grpo_doctor.hang.model.matching.meetings import Meetings, Waiting
from grpo_doctor.hang.model.matching.model import Backlog, Matching
from grpo_doctor.hang.model.matching.pairs import unmatched
from grpo_doctor.hang.model.matching.queues import Queue, queues
from grpo_doctor.hang.model.matching.rhythm import rhythm
from grpo_doctor.hang.model.matching.scene import Scene
from grpo_doctor.hang.model.matching.shifts import shifts
from grpo_doctor.hang.model.matching.signatures import Signatures
from grpo_doctor.hang.model.matching.standing import standing
from grpo_doctor.hang.model.matching.tracks import Track
from grpo_doctor.hang.model.matching.waits import cycles, waits


def match(recordings: Recordings, world_size: int | None = None) -> Matching:
    """How far every rank is in every group, who waits for whom, and whom that points at.

    `world_size` None: as many as the recordings name.
    """
    known = [one for one in recordings.ranks if one.rank is not None]
    world = groups.world(recordings, world_size)
    gathered = {one.group.key: one for one in gather(recordings, world)}
    scene = _scene(known, gathered)
    scene.shifts = tuple(
        shift
        for key in dict.fromkeys(unit.group for unit in scene.waiting.heads)
        if key in gathered
        for shift in shifts(gathered[key], scene.pasts[key], scene.signatures)
    )
    heads: dict[str, set[int]] = defaultdict(set)
    for unit in scene.waiting.heads:
        if not unit.transfer:
            heads[unit.group].add(unit.number)
    scene.waits = waits(scene.waiting, scene.signatures, scene.camps)
    return Matching(
        standings=tuple(standing(scene, key, frozenset(heads[key])) for key in gathered),
        pairs=tuple(pair for one in gathered.values() for pair in unmatched(one, scene.heard)),
        shifts=scene.shifts,
        waits=scene.waits,
        cycles=cycles(scene.waits, scene.waiting.sinks),
        rhythms=tuple(
            rhythm(one, one.rank, scene.signatures) for one in known if one.rank is not None
        ),
        blame=blame(scene),
        heard=tuple(sorted(scene.heard)),
        world_size=world,
        moved=_moved(known),
        taken_unix_ns=max((one.at_unix_ns for one in known), default=0),
        notes=_notes(recordings),
        backlogs=tuple(_backlog(scene, queue) for queue in scene.queues.values()),
    )


def _scene(known: Sequence[Recording], gathered: Mapping[str, Gathered]) -> Scene:
    signatures = Signatures()
    pasts = {key: history(one.tracks, signatures) for key, one in gathered.items()}
    tracks: dict[int, dict[str, Track]] = defaultdict(dict)
    for key, one in gathered.items():
        for rank, track in one.tracks.items():
            tracks[rank][key] = track
    queued = queues(known, tracks)
    scene = Scene(
        gathered=gathered,
        pasts=pasts,
        signatures=signatures,
        families=Families(gathered, pasts, signatures),
        heard=frozenset(queued),
        queues=queued,
    )
    scene.hung = tuple(hung(scene))
    stuck = frozenset(one.rank for one in scene.hung)
    scene.waiting = Waiting(Meetings(gathered, queued), queued, stuck)
    return scene


def _backlog(scene: Scene, queue: Queue) -> Backlog:
    heads = queue.heads
    head = ""
    if heads and heads[0].parts:
        head = scene.signatures.signature(heads[0].parts).text()
    return Backlog(
        rank=queue.rank,
        pending=len(queue.units),
        idle=queue.told and not queue.units,
        head=head,
        heads=tuple((unit.group, unit.number) for unit in heads),
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
