"""Whether the job stands, and who may be the reason: ranks that do not wait for others."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor.hang.scene import Actor, Scene

MOMENT_S = 2.0  # collectives of a healthy step may take that long


@dataclass(frozen=True, slots=True)
class Stall:
    """`stalled`: some rank has stood still for longer than a moment. `suspects` are the ranks that
    others may wait for, `working` those of them that get on.
    """

    stalled: bool
    suspects: tuple[Actor, ...]
    working: tuple[Actor, ...]


def stall_of(scene: Scene) -> Stall:
    """Compares all ranks' motion."""
    ranks = tuple(scene.by_rank.values())
    missing = {rank for one in scene.matching.standings for rank in one.missing}
    waiting = [one for one in ranks if one.waits]
    suspects = tuple(one for one in ranks if not one.waits)
    if not suspects and missing:
        # Their stacks say a collective, the recordings that it is not the one the others are in.
        suspects = tuple(
            one for one in waiting if one.rank in missing and not one.place.communicates
        )
    still = [one for one in ranks if one.held or _stands(scene, one)]
    return Stall(
        stalled=bool(still) or scene.all_spin,
        suspects=suspects,
        working=tuple(one for one in suspects if not one.held and _works(one)),
    )


def _works(actor: Actor) -> bool:
    """A rank that burns a core at one place is at work only where that is what its work is like."""
    if actor.motion.kind == "busy":
        return actor.long_work is not None
    return actor.motion.kind == "working"


def _stands(scene: Scene, actor: Actor) -> bool:
    """Whether a rank has not got on for longer than a moment."""
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
    still = actor.motion.still_s
    return actor.motion.kind == "still" and (still is None or still >= MOMENT_S)
