"""Which ranks wait for their device because it waits for another rank's. Pure.

Under NCCL a host queues its collectives and goes on; where it reads a result it spins. What it then
waits for is the oldest operation that its device has not finished: a flight recorder tells which,
and where none does, a rank that is elsewhere tells that the others spin for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from grpo_doctor.hang.model.matching import Matching
from grpo_doctor.hang.model.process.actor import Actor


def with_device_waits(
    actors: Sequence[Actor], matching: Matching, *, lost: bool
) -> tuple[Actor, ...]:
    """The same processes; those ranks are `outstanding` whose device waits for another rank's.

    `lost`: a rank that should be here has no process.
    """
    ranks = [actor for actor in actors if actor.member.role == "rank"]
    elsewhere = lost or any(not (actor.spins or actor.waits) for actor in ranks)
    return tuple(
        replace(actor, outstanding=True)
        if actor.member.role == "rank"
        and actor.spins
        and not actor.waits
        and _waits_for_others(actor, matching, elsewhere=elsewhere)
        else actor
        for actor in actors
    )


def _waits_for_others(actor: Actor, matching: Matching, *, elsewhere: bool) -> bool:
    pending = has_pending(matching, actor.rank)
    return elsewhere if pending is None else pending


def has_pending(matching: Matching, rank: int | None) -> bool | None:
    """Whether its device has operations queued that are not done; None without a recording."""
    if rank is None or rank not in matching.heard:
        return None
    rhythm = matching.rhythm(rank)
    return rhythm is not None and rhythm.waiting_since_ns is not None
