"""Whether the job stands, and who may be the reason: ranks that do not wait for others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grpo_doctor.hang.decision.silence import quiet_s
from grpo_doctor.hang.dumps import Recording
from grpo_doctor.hang.model.process import ray_code
from grpo_doctor.hang.model.scene import Actor, Scene, has_pending
from grpo_doctor.hang.model.waiting import tasks

_GOES_ON = 2  # calls of one rank in a group, while another waits forever
MOMENT_S = 2.0  # collectives of a healthy step may take that long


@dataclass(frozen=True, slots=True)
class Stall:
    """`stalled`: some rank has stood still for longer than a moment; of ranks that are Ray actors
    without a task, one of those with a task. `suspects` are the ranks that others may wait for,
    `working` those of them that make progress.
    """

    stalled: bool
    suspects: tuple[Actor, ...]
    working: tuple[Actor, ...]


@dataclass(frozen=True, slots=True)
class _WaitAsRead:
    """Since when a rank waits, and when that was read off it, in nanoseconds of Unix time."""

    since_unix_ns: int
    read_unix_ns: int


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
    """Return whether its host spins for its GPU and nothing shows what that does; False for a rank
    for which others wait in a collective.
    """
    if not actor.spins or has_pending(scene.recordings, scene.matching, actor.rank) is not None:
        return False
    waits = (wait for wait in scene.matching.waits if wait.why == "missing")
    return not any(actor.rank in wait.on for wait in waits)


def _waits_for_ranks(scene: Scene, actor: Actor) -> bool:
    """Return whether its collective is one of the job's ranks. A rank that makes progress in an
    unrecorded one, or in a group of no other known rank, sends weights to a rollout engine.
    """
    known = any(wait.rank == actor.rank and wait.on for wait in scene.matching.waits)
    return actor.place.communicates and (known or not actor.motion.stirs)


def _moved_on(scene: Scene) -> bool:
    """Whether a rank called something after the recorder or the stack of one that waits was read.
    These are read one after the other, seconds apart on a busy machine: together they then show no
    standstill, and who was read later seems to be ahead of the others.
    """
    live = [recording for recording in scene.recordings.ranks if not recording.from_file]
    by_host: dict[str, list[Recording]] = {}  # whose clock it is
    for recording in live:
        actor = scene.by_rank.get(recording.rank) if recording.rank is not None else None
        by_host.setdefault(actor.member.host if actor is not None else "", []).append(recording)
    if any(_called_meanwhile(own, _recorded_waits(scene, own)) for own in by_host.values()):
        return True
    return set(by_host) == {""} and _called_meanwhile(live, _transfer_waits(scene))


def _recorded_waits(scene: Scene, recordings: Sequence[Recording]) -> list[_WaitAsRead]:
    """Of the ranks whose recorder has an unfinished operation."""
    return [
        _WaitAsRead(rhythm.waiting_since_ns, recording.at_unix_ns)
        for recording in recordings
        if recording.rank is not None
        and (rhythm := scene.matching.rhythm(recording.rank)) is not None
        and rhythm.waiting_since_ns
        and recording.at_unix_ns
    ]


def _transfer_waits(scene: Scene) -> list[_WaitAsRead]:
    """Return the waits of ranks whose stack is in a send or recv, which gloo does not record: they
    count since the call before. An attach begins shortly before its first sample, so a time is
    rather too early than too late.
    """
    evidence = scene.evidence
    if not evidence.looks:
        return []
    to_unix_ns = evidence.taken_unix_ns - evidence.looks[0].at_ns
    waits = []
    for rank, actor in scene.by_rank.items():
        recording = scene.recordings.of(rank)
        if actor.place.call == "p2p" and actor.stack is not None and recording is not None:
            read_ns = actor.stack.at_ns + to_unix_ns
            calls = (entry.created_ns or 0 for entry in recording.entries)
            since_ns = max((created for created in calls if created <= read_ns), default=0)
            waits.append(_WaitAsRead(since_ns, read_ns))
    return waits


def called_since_first_look(scene: Scene) -> bool:
    """Return whether a rank began a collective after the first sample."""
    began_ns = scene.evidence.taken_unix_ns
    newest_ns = max((rhythm.last_enqueued_ns or 0 for rhythm in scene.matching.rhythms), default=0)
    return 0 < began_ns < newest_ns


def _called_meanwhile(recordings: Sequence[Recording], waits: Sequence[_WaitAsRead]) -> bool:
    """Return whether a rank called something while another one waited. Groups with calls during the
    whole wait do not count: a thread other than the main one uses them.
    """
    if not waits:
        return False
    since_ns = min(wait.since_unix_ns for wait in waits)
    read_ns = min(wait.read_unix_ns for wait in waits)
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
    """Return whether no rank has a task and no process with a task makes progress. A rank that
    worked between the samples had one, and a wait shorter than an earlier one shows nothing.
    """
    quiet, usual_s = tasks.quiet_s(scene), scene.patience.longest_gap_s
    usual = quiet is not None and usual_s is not None and quiet <= usual_s
    if usual or any(actor.motion.got_on for actor in scene.by_rank.values()):
        return False
    at_work = tasks.at_work(scene)
    return bool(at_work) and all(
        actor.held or tasks.asks(actor) or _stands(scene, actor) for actor in at_work
    )


def _all_want_locks(scene: Scene) -> bool:
    """Return whether every rank polls a lock file and no running process may hold it. A rank that
    polls has just run, however long it has polled.
    """
    ranks = scene.by_rank.values()
    tries = all(actor.place.call == "file-lock" and actor.motion.only_ticks for actor in ranks)
    able = (actor for actor in scene.actors if not ray_code.serves(actor.member))
    return bool(ranks) and tries and not any(actor.motion.progresses for actor in able)


def _works(actor: Actor) -> bool:
    """Return whether a rank works; one that spins at one line does only in CPU-bound work."""
    if actor.motion.kind == "busy":
        return actor.long_work is not None
    return actor.motion.kind == "working"


def _stands(scene: Scene, actor: Actor) -> bool:
    """Return whether a rank made no progress for longer than a moment."""
    if actor.device_wait:
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
