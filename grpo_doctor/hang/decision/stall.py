"""Whether the job stands, and who may be the reason: ranks that do not wait for others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grpo_doctor.hang.decision.silence import quiet_s
from grpo_doctor.hang.dumps import Recording
from grpo_doctor.hang.model.process import ray_code
from grpo_doctor.hang.model.scene import Actor, Scene, has_pending
from grpo_doctor.hang.model.waiting import tasks

_GOES_ON = 2  # calls of one rank in a group, while another waits for ever
MOMENT_S = 2.0  # collectives of a healthy step may take that long


@dataclass(frozen=True, slots=True)
class Stall:
    """`stalled`: some rank has stood still for longer than a moment; of ranks that are Ray actors
    without a task, whoever has one. `suspects` are the ranks that others may wait for, `working`
    those of them that get on.
    """

    stalled: bool
    suspects: tuple[Actor, ...]
    working: tuple[Actor, ...]


def stall_of(scene: Scene) -> Stall:
    """Compares all ranks' motion."""
    ranks = tuple(scene.by_rank.values())
    missing = {rank for standing in scene.matching.standings for rank in standing.missing}
    waiting = [actor for actor in ranks if actor.waits]
    idle = tasks.idle_ranks(scene)
    free = (actor for actor in ranks if not actor.waits and actor not in idle)
    suspects = tuple(actor for actor in free if not _waits_for_unknown(scene, actor))
    if not suspects and missing:
        # Their stacks say a collective, the recordings that it is not the one the others are in.
        suspects = tuple(
            actor
            for actor in waiting
            if actor.rank in missing and not _waits_for_ranks(scene, actor)
        )
    still = [
        actor for actor in ranks if actor not in idle and (actor.held or _stands(scene, actor))
    ]
    unanswered = len(idle) == len(ranks) and _unanswered(scene)
    stands = bool(still) or scene.all_spin or unanswered or _all_want_locks(scene)
    return Stall(
        stalled=stands and not _moved_on(scene),
        suspects=suspects,
        working=tuple(actor for actor in suspects if not actor.held and _works(actor)),
    )


def _waits_for_unknown(scene: Scene, actor: Actor) -> bool:
    """Whether its host spins for its device and nothing tells what that does; not one for which
    others wait in a collective.
    """
    if not actor.spins or has_pending(scene.recordings, scene.matching, actor.rank) is not None:
        return False
    waits = (wait for wait in scene.matching.waits if wait.why == "missing")
    return not any(actor.rank in wait.on for wait in waits)


def _waits_for_ranks(scene: Scene, actor: Actor) -> bool:
    """Whether its collective is one of the job's ranks. Who gets on in one that no recorder has, or
    of a group of which no other rank is known, sends its weights to a rollout engine.
    """
    known = any(wait.rank == actor.rank and wait.on for wait in scene.matching.waits)
    return actor.place.communicates and (known or not actor.motion.stirs)


def _moved_on(scene: Scene) -> bool:
    """Whether a rank called something after the recorder of one that waits was read. Recorders are
    read one after the other: together they then show no standstill, and who was read later seems to
    be ahead of the others.
    """
    live = [recording for recording in scene.recordings.ranks if not recording.from_file]
    by_host: dict[str, list[Recording]] = {}  # whose clock it is
    for recording in live:
        actor = scene.by_rank.get(recording.rank) if recording.rank is not None else None
        by_host.setdefault(actor.member.host if actor is not None else "", []).append(recording)
    return any(_called_meanwhile(scene, own) for own in by_host.values())


def _called_meanwhile(scene: Scene, recordings: Sequence[Recording]) -> bool:
    """Groups in which calls went on all the time that a rank waits do not count: a thread beside
    the main one uses them.
    """
    waiting = [
        (rhythm.waiting_since_ns, recording.at_unix_ns)
        for recording in recordings
        if recording.rank is not None
        and (rhythm := scene.matching.rhythm(recording.rank)) is not None
        and rhythm.waiting_since_ns
        and recording.at_unix_ns
    ]
    if not waiting:
        return False
    since_ns, read_ns = min(since for since, _ in waiting), min(read for _, read in waiting)
    for recording in recordings:
        calls: dict[tuple[str, str], list[int]] = {}
        for entry in recording.entries:
            if entry.created_ns and entry.created_ns > since_ns:
                calls.setdefault((entry.group, entry.backend), []).append(entry.created_ns)
        for group in calls.values():
            before = sum(created <= read_ns for created in group)
            if before < _GOES_ON and before < len(group):
                return True
    return False


def _unanswered(scene: Scene) -> bool:
    """Whether nobody gets on of those who have a task while no rank has one."""
    at_work = tasks.at_work(scene)
    return bool(at_work) and all(
        actor.held or tasks.asks(actor) or _stands(scene, actor) for actor in at_work
    )


def _all_want_locks(scene: Scene) -> bool:
    """Whether every rank tries a lock file again and again and nobody is at work who may have it:
    who polls has just run, however long it has been at it.
    """
    ranks = scene.by_rank.values()
    tries = all(actor.place.call == "file-lock" and actor.motion.only_ticks for actor in ranks)
    others = (actor for actor in scene.actors if not ray_code.serves(actor.member))
    return bool(ranks) and tries and not any(actor.motion.progresses for actor in others)


def _works(actor: Actor) -> bool:
    """A rank that burns a core at one place is at work only where that is what its work is like."""
    if actor.motion.kind == "busy":
        return actor.long_work is not None
    return actor.motion.kind == "working"


def _stands(scene: Scene, actor: Actor) -> bool:
    """Whether a rank has not got on for longer than a moment."""
    if actor.device_wait and not actor.motion.moved:
        return True  # two looks and a closer one, some seconds, at one line
    if actor.waits:
        return _waits_long(scene, actor)
    still = actor.motion.still_s
    if actor.motion.kind == "still":
        return still is None or still >= MOMENT_S
    return False


def _waits_long(scene: Scene, actor: Actor) -> bool:
    rhythm = scene.matching.rhythm(actor.rank) if actor.rank is not None else None
    if rhythm is not None and rhythm.waiting_since_ns is not None and rhythm.taken_ns:
        return (rhythm.taken_ns - rhythm.waiting_since_ns) / 1e9 >= MOMENT_S
    if actor.tid != actor.pid and actor.deed.communicates:  # however its event loop ticks
        return quiet_s(actor, frozenset({actor.tid})) >= MOMENT_S
    still = actor.motion.still_s
    return actor.motion.kind == "still" and (still is None or still >= MOMENT_S)
