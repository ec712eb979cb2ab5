"""From recordings to a matching."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from grpo_doctor.hang.dumps import Recording, Recordings
from grpo_doctor.hang.model.matching import groups
from grpo_doctor.hang.model.matching.blame import blame
from grpo_doctor.hang.model.matching.context import MatchContext, context_of
from grpo_doctor.hang.model.matching.devices import hung
from grpo_doctor.hang.model.matching.graph import Waiting, cycles, waits
from grpo_doctor.hang.model.matching.groups import gather
from grpo_doctor.hang.model.matching.joint_ops import JointOps
from grpo_doctor.hang.model.matching.model import Backlog, GroupStatus, Kind, Matching
from grpo_doctor.hang.model.matching.pace import pace
from grpo_doctor.hang.model.matching.shifts import shifts
from grpo_doctor.hang.model.matching.sides import sides_of


def match(recordings: Recordings, world_size: int | None = None) -> Matching:
    """How far every rank is in every group, who waits for whom, and whom that points at.

    `world_size` None: as many as the recordings name.
    """
    ranked = [recording for recording in recordings.ranks if recording.rank is not None]
    world = groups.world(recordings, world_size)
    gathered = {merged.group.key: merged for merged in gather(recordings, world)}
    context = context_of(ranked, gathered)
    context.hung = tuple(hung(context))
    stuck = frozenset(blamed.rank for blamed in context.hung)
    context.waiting = Waiting(JointOps(gathered, context.queues), context.queues, stuck)
    context.shifts = tuple(
        shift
        for key in dict.fromkeys(unit.group for unit in context.waiting.heads)
        if key in gathered
        for shift in shifts(gathered[key], context.pasts[key], context.signatures)
    )
    heads: dict[str, set[int]] = defaultdict(set)
    for unit in context.waiting.heads:
        if not unit.transfer:
            heads[unit.group].add(unit.number)
    context.waits = waits(
        context.waiting, context.signatures, lambda joint_op: sides_of(context, joint_op)[0]
    )
    return Matching(
        statuses=tuple(_standing(context, key, frozenset(heads[key])) for key in gathered),
        shifts=context.shifts,
        waits=context.waits,
        cycles=cycles(context.waits, context.waiting.sinks),
        paces=tuple(
            pace(recording, recording.rank, context.signatures)
            for recording in recordings.ranks
            if recording.rank is not None
        ),
        blame=blame(context),
        heard=tuple(sorted(context.heard)),
        world_size=world,
        moved=_moved(ranked),
        backlogs=tuple(
            Backlog(queue.rank, len(queue.units), queue.recorded and not queue.units)
            for queue in context.queues.values()
        ),
    )


def _standing(context: MatchContext, key: str, heads: frozenset[int]) -> GroupStatus:
    """Return the oldest collective of the group that a rank may be running and that is not done
    everywhere, and who is where with it; where none is, of those that are merely behind others.

    `heads` are the numbers of its collectives at the head of a stream.
    """
    tracks = context.gathered[key].tracks
    fronts = {track.front for track in tracks.values() if track.front is not None}
    statuses = [_at(context, key, front) for front in sorted(heads or fronts)]
    telling = [status for status in statuses if status.kind in {"missing", "mismatch"}]
    fine = GroupStatus(context.gathered[key].group, "fine")
    return next(iter(telling or statuses), fine)


def _at(context: MatchContext, key: str, front: int) -> GroupStatus:
    group, tracks = context.gathered[key].group, context.gathered[key].tracks
    reached = {rank: track.enqueued for rank, track in tracks.items()}
    arrived = tuple(rank for rank in group.members if (reached.get(rank) or -1) >= front)
    missing = tuple(r for r in group.members if r in context.heard and r not in arrived)
    sides, even = sides_of(context, context.waiting.joint_ops.collective(key, front))
    unknown = group.size is not None and group.size > len(group.members)
    alone = len(group.members) == 1 and group.inferred
    all_heard = context.heard.issuperset(group.members)
    kind: Kind = "all-joined-none-done" if all_heard else "unknown"
    if len(sides) > 1:
        kind = "mismatch"
    elif missing or unknown or alone:
        kind = "missing"
    elif any(tracks[rank].done(front) for rank in arrived):
        kind = "partial"
    return GroupStatus(
        group=group,
        kind=kind,
        operation=sides[0].signature.text() if sides else "a collective",
        arrived=arrived,
        missing=missing,
        sides=sides,
        even=even,
        timed_out=any(track.timed_out for track in tracks.values()),
    )


def _moved(recordings: Sequence[Recording]) -> bool | None:
    moves = [recording.moved for recording in recordings if recording.moved is not None]
    return any(moves) if moves else None
