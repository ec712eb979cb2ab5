"""From recordings to a matching."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from grpo_doctor.hang.dumps import Recording, Recordings
from grpo_doctor.hang.model.matching import groups
from grpo_doctor.hang.model.matching.blame import blame
from grpo_doctor.hang.model.matching.camps import sides
from grpo_doctor.hang.model.matching.devices import hung
from grpo_doctor.hang.model.matching.graph import Waiting, cycles, waits
from grpo_doctor.hang.model.matching.groups import gather
from grpo_doctor.hang.model.matching.meetings import Meetings
from grpo_doctor.hang.model.matching.model import Backlog, Kind, Matching, Standing
from grpo_doctor.hang.model.matching.rhythm import rhythm
from grpo_doctor.hang.model.matching.scene import Scene, scene_of
from grpo_doctor.hang.model.matching.shifts import shifts


def match(recordings: Recordings, world_size: int | None = None) -> Matching:
    """How far every rank is in every group, who waits for whom, and whom that points at.

    `world_size` None: as many as the recordings name.
    """
    ranked = [recording for recording in recordings.ranks if recording.rank is not None]
    world = groups.world(recordings, world_size)
    gathered = {merged.group.key: merged for merged in gather(recordings, world)}
    scene = scene_of(ranked, gathered)
    scene.hung = tuple(hung(scene))
    stuck = frozenset(blamed.rank for blamed in scene.hung)
    scene.waiting = Waiting(Meetings(gathered, scene.queues), scene.queues, stuck)
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
    scene.waits = waits(scene.waiting, scene.signatures, lambda meeting: sides(scene, meeting)[0])
    return Matching(
        standings=tuple(_standing(scene, key, frozenset(heads[key])) for key in gathered),
        shifts=scene.shifts,
        waits=scene.waits,
        cycles=cycles(scene.waits, scene.waiting.sinks),
        rhythms=tuple(
            rhythm(recording, recording.rank, scene.signatures)
            for recording in recordings.ranks
            if recording.rank is not None
        ),
        blame=blame(scene),
        heard=tuple(sorted(scene.heard)),
        world_size=world,
        moved=_moved(ranked),
        backlogs=tuple(
            Backlog(queue.rank, len(queue.units), queue.recorded and not queue.units)
            for queue in scene.queues.values()
        ),
    )


def _standing(scene: Scene, key: str, heads: frozenset[int]) -> Standing:
    """Return the oldest collective of the group that a rank may be running and that is not done
    everywhere, and who is where with it; where none is, of those that are merely behind others.

    `heads` are the numbers of its collectives at the head of a stream.
    """
    tracks = scene.gathered[key].tracks
    fronts = {track.front for track in tracks.values() if track.front is not None}
    standings = [_at(scene, key, front) for front in sorted(heads or fronts)]
    telling = [standing for standing in standings if standing.kind in {"missing", "mismatch"}]
    fine = Standing(scene.gathered[key].group, "fine")
    return next(iter(telling or standings), fine)


def _at(scene: Scene, key: str, front: int) -> Standing:
    group, tracks = scene.gathered[key].group, scene.gathered[key].tracks
    reached = {rank: track.enqueued for rank, track in tracks.items()}
    arrived = tuple(rank for rank in group.members if (reached.get(rank) or -1) >= front)
    missing = tuple(r for r in group.members if r in scene.heard and r not in arrived)
    camps, even = sides(scene, scene.waiting.meetings.collective(key, front))
    unknown = group.size is not None and group.size > len(group.members)
    alone = len(group.members) == 1 and group.inferred
    all_heard = scene.heard.issuperset(group.members)
    kind: Kind = "all-joined-none-done" if all_heard else "unknown"
    if len(camps) > 1:
        kind = "mismatch"
    elif missing or unknown or alone:
        kind = "missing"
    elif any(tracks[rank].done(front) for rank in arrived):
        kind = "partial"
    return Standing(
        group=group,
        kind=kind,
        operation=camps[0].signature.text() if camps else "a collective",
        arrived=arrived,
        missing=missing,
        camps=camps,
        even=even,
        timed_out=any(track.timed_out for track in tracks.values()),
    )


def _moved(recordings: Sequence[Recording]) -> bool | None:
    moves = [recording.moved for recording in recordings if recording.moved is not None]
    return any(moves) if moves else None
