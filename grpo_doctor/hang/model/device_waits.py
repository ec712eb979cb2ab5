"""Which ranks wait for their device because it waits for another rank's. Pure.

Under NCCL a host queues its collectives and goes on; where it reads a result it spins. What it then
waits for is the oldest operation that its device has not finished: a flight recorder tells which,
and where none does, a rank that is elsewhere tells that the others spin for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from grpo_doctor.hang.dumps import Recording, Recordings
from grpo_doctor.hang.dumps.entries import GIVES_UP
from grpo_doctor.hang.model.matching import Matching
from grpo_doctor.hang.model.process.actor import Actor


def with_device_waits(
    actors: Sequence[Actor], recordings: Recordings, matching: Matching, *, lost: bool
) -> tuple[Actor, ...]:
    """The same processes; those ranks are `outstanding` whose device waits for another rank's.

    `lost`: a rank that should be here has no process.
    """
    ranks = [actor for actor in actors if actor.member.role == "rank"]
    elsewhere = lost or any(not (actor.spins or actor.waits) for actor in ranks)

    def waits_for_others(actor: Actor) -> bool:
        pending = has_pending(recordings, matching, actor.rank)
        return elsewhere if pending is None else pending

    return tuple(
        replace(actor, outstanding=True)
        if actor.member.role == "rank"
        and actor.spins
        and not actor.waits
        and waits_for_others(actor)
        else actor
        for actor in actors
    )


def has_pending(recordings: Recordings, matching: Matching, rank: int | None) -> bool | None:
    """Whether its device has operations queued that are not done; None where no recorder of a
    device's library tells: that of gloo knows nothing of them.
    """
    recording = recordings.of(rank) if rank is not None else None
    backlog = matching.backlog(rank) if rank is not None else None
    if recording is None or backlog is None or not _is_of_device(recording):
        return None
    return not backlog.idle


def _is_of_device(recording: Recording) -> bool:
    return bool(recording.library) or any(one.backend in GIVES_UP for one in recording.entries)
