"""Ranks of which there is no process on this host."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_doctor.hang.causes.candidate import Candidate, Case, Sink
from grpo_doctor.hang.causes.memory import out_of_memory, recent_oom
from grpo_doctor.hang.causes.wording import stack_item
from grpo_doctor.hang.model.process.progress import TICKS_PER_SECOND
from grpo_doctor.hang.model.scene import Actor, Scene
from grpo_doctor.hang.verdict import Fix, Item

JOINING_S = 120.0  # of a job over several hosts, which pull images and start one by one
JOINING_HERE_S = 5.0  # after the last process was started; and as much again as they took to start


def propose(case: Case) -> Iterator[Candidate]:
    """Ranks that no process here is. Of a job over several hosts they may be elsewhere."""
    scene, job = case.scene, case.scene.evidence.job
    gone = tuple(rank for rank in job.ranks_missing if rank not in scene.by_rank)
    if not gone or not scene.by_rank:
        return
    joining = [a for a in scene.by_rank.values() if a.place.call == "store"]
    gone = tuple(rank for rank in gone if rank not in scene.elsewhere)
    if not gone:
        return  # they run on another host, or this one knows nothing of them
    items: tuple[Item, ...] = (
        Item("proc", None, f"{len(scene.by_rank)} of {job.world_size} ranks are on this host"),
        *(stack_item(actor) for actor in joining[:2]),
    )
    if joining:
        yield _not_joined(scene, gone, joining, items)
        return
    waited_for = any(actor.waits for actor in scene.by_rank.values())
    oom = recent_oom(scene)
    if oom and waited_for:
        yield out_of_memory(gone, "was killed for want of memory", (*items, *oom))
        return
    yield Candidate(
        cause="rank-dead",
        culprits=gone,
        reason="is dead: no process of it is left",
        evidence=items,
        sink=Sink.ENDED if waited_for else Sink.NOTHING,
        # A rank that nobody waits for may have ended in order.
        liveness="dead" if waited_for else "unseen",
        fixes=(Fix("Look at the first traceback in its log, and start the job again."),),
    )


def _not_joined(
    scene: Scene, gone: tuple[int, ...], joining: list[Actor], items: tuple[Item, ...]
) -> Candidate:
    return Candidate(
        cause="rank-missing",
        culprits=gone,
        reason="has not come to the rendezvous",
        evidence=items,
        sink=Sink.PROCESS,
        liveness="never-wakes" if joined_for_s(scene) > _joining_s(scene, gone) else "unseen",
        phase="init",
        still_s=max((a.motion.still_s or 0.0 for a in joining), default=None),
        fixes=(
            Fix("Start the missing rank, or correct WORLD_SIZE and MASTER_ADDR where it runs."),
            Fix("If it was started, it has ended: look at the first traceback in its log."),
        ),
        confirm=("pgrep -af python  # on every host: is the missing rank's process there?",),
    )


def joined_for_s(scene: Scene) -> float:
    """Since the last of the ranks that are here was started, or for how long they have waited.

    Waiting at the store is done in slices of some seconds, after each of which the thread runs.
    """
    now_s = scene.evidence.looks[-1].at_ns / 1e9
    begun_s = max(a.member.started_ticks / TICKS_PER_SECOND for a in scene.by_rank.values())
    return max(scene.patience.waited_s or 0.0, now_s - begun_s)


def _joining_s(scene: Scene, gone: tuple[int, ...]) -> float:
    """For how long a rank may be missing. One launcher starts all of a host's ranks at once, in
    their order: one before the last that is here was started as well, and has ended.
    """
    job = scene.evidence.job
    if job.local_ranks is None or job.local_ranks != job.world_size:
        return JOINING_S
    if max(gone) < max(scene.by_rank):
        return JOINING_HERE_S
    begun = [actor.member.started_ticks / TICKS_PER_SECOND for actor in scene.by_rank.values()]
    return JOINING_HERE_S + 3 * (max(begun) - min(begun))
