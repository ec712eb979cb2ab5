"""Ray's actors: ranks that have nothing to do because another process does not give its answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from grpo_doctor.hang.causes import blocked_io, child_processes, cpu, rollout_engine, storage
from grpo_doctor.hang.causes.candidate import Candidate, Case, Liveness, Sink, ranks_of
from grpo_doctor.hang.causes.description import (
    blocked_class,
    doing,
    in_phase,
    process_item,
    stack_item,
    standstill,
    title,
)
from grpo_doctor.hang.model.process import ray_code
from grpo_doctor.hang.model.scene import Actor, Scene
from grpo_doctor.hang.model.waiting import tasks
from grpo_doctor.hang.verdict import Fix, Item
from grpo_doctor.hang.wording import ranks_text, seconds_text, verb

_FAMILIES = (child_processes, storage, rollout_engine, cpu, blocked_io)
_ROLLOUT = ("generat", "rollout", "sample")
MOST_CALLERS = 3


_HELD = {"stopped": Sink.PROCESS, "frozen": Sink.PROCESS, "gone": Sink.ENDED}


def propose(case: Case) -> Iterator[Candidate]:
    """Ranks that ask for an answer themselves; and where all are idle, who has a task."""
    for actor in case.suspects:
        if tasks.asks(actor):
            yield _asking(case.scene, actor)
        elif tasks.is_idle(actor):
            yield _not_called(actor)
    if case.suspects or not tasks.idle_ranks(case.scene):
        return
    for actor in tasks.at_work(case.scene):
        yield _unanswered(case.scene, actor) if tasks.asks(actor) else _at_work(case, actor)


def _asking(scene: Scene, actor: Actor) -> Candidate:
    workers = [pending for pending in tasks.pending(scene) if pending.pid != actor.pid]
    works = any(worker.motion.progresses for worker in workers)
    source = _source(workers) if workers else "that no process of this host computes"
    return Candidate(
        cause=blocked_class(actor),
        reason=f"waits for a Ray result {source}{in_phase(actor)}",
        evidence=(*map(process_item, workers[:3]), *standstill(actor)),
        sink=Sink.ANSWER,
        liveness="computing" if works else "unseen",
        node=workers[0].node if workers else None,
        fixes=(Fix("Give ray.get a timeout, and request no more resources than the cluster has."),),
        confirm=("ray list tasks --filter state!=FINISHED  # one that waits for resources?",),
    ).of(actor)


def _not_called(actor: Actor) -> Candidate:
    """Others are in a collective, and this one's method has come to its end without it."""
    return Candidate(
        cause="collective-skipped",
        culprits=ranks_of(actor),
        reason="has no Ray task: its method has ended, or the driver has not called it",
        evidence=(Item("proc", actor.rank, title(actor)), stack_item(actor)),
        sink=Sink.ANSWER,
        fixes=(Fix("Call the method on all actors of the group before waiting for any of them."),),
        confirm=("ray list tasks --filter state=RUNNING",),
    )


def _source(workers: list[Actor]) -> str:
    first = workers[0]
    return f"from {tasks.task_of(first) or 'a process'} ({title(first)}), which {doing(first)}"


def _unanswered(scene: Scene, actor: Actor) -> Candidate:
    """Return the cause of a call that no actor executes: its actor died, or it never started."""
    asking = _asking(scene, actor)
    return replace(
        asking,
        liveness="computing",  # an actor on another host may be at it: that is not seen here
        whole=_sentence(scene, actor, asking.reason),
        node=actor.node,
        still_s=tasks.quiet_s(scene),
    )


def _sentence(scene: Scene, actor: Actor, reason: str) -> str:
    idle = [actor.rank for actor in tasks.idle_ranks(scene) if actor.rank is not None]
    return f"{_title(actor)} {reason}; {ranks_text(idle)} {verb(idle, 'has')} no task until then"


def _at_work(case: Case, actor: Actor) -> Candidate:
    """The actor, or the driver, in whose task everything stands."""
    alone = replace(case, suspects=(actor,))
    candidates = (
        candidate
        for family in _FAMILIES
        for candidate in family.propose(alone)
        if not candidate.culprits
    )
    best = max(
        candidates, key=lambda candidate: (candidate.sink, candidate.cannot_move), default=None
    )
    if best is None:
        best = _halted(actor)
    elif tasks.awaits_coroutine(actor):
        best = _in_coroutine(actor)
    return replace(
        best,
        cause=_class(actor, best),
        whole=_sentence(case.scene, actor, best.reason),
        node=best.node or actor.node,
        phase=best.phase or _phase(actor),
        evidence=(*best.evidence, *_callers(case.scene, actor)),
    )


def _callers(scene: Scene, actor: Actor) -> tuple[Item, ...]:
    """The driver and the controllers, which wait for this one's answer."""
    callers = [caller for caller in tasks.controllers(scene) if caller.pid != actor.pid]
    return tuple(
        Item("proc", None, f"{title(caller)} waits for the result{in_phase(caller)}")
        for caller in callers[:MOST_CALLERS]
    )


def _halted(actor: Actor) -> Candidate:
    candidate = Candidate(
        cause="user-code-blocked",
        reason=doing(actor),
        evidence=(process_item(actor), stack_item(actor)),
        sink=_HELD.get(actor.motion.kind, Sink.COUNTERS),
        liveness=_liveness(actor),
    ).of(actor)
    stopped = actor.motion.kind == "stopped"
    return (
        candidate.continued(actor.pid, "its task must resume immediately") if stopped else candidate
    )


def _in_coroutine(actor: Actor) -> Candidate:
    """Its event loop has nothing to run, so that its coroutines all await something."""
    quiet_s = actor.motion.still_s
    since = f", which last ran {seconds_text(quiet_s)} ago" if quiet_s is not None else ""
    return Candidate(
        cause="user-code-blocked",
        reason="awaits something in a coroutine; stacks do not show the line",
        evidence=(Item("proc", None, f"{title(actor)}: its event loop is idle{since}"),),
        sink=Sink.ANSWER,
        liveness="outside",  # a server may be what it awaits
        fixes=(Fix("Give the await a timeout: asyncio.wait_for(..., timeout=60)."),),
        confirm=(f"ss -tnp | grep pid={actor.pid}  # whose response it awaits",),
    ).of(actor)


def _phase(actor: Actor) -> str | None:
    """The phase of its stack, else of its name: `RewardLoopWorker`, `RolloutServer`."""
    name = ray_code.title_of(actor.member).lower()
    named_after = "reward" if "reward" in name else None
    generates = any(word in name for word in _ROLLOUT)
    return actor.phase or named_after or ("rollout" if generates else None)


def _liveness(actor: Actor) -> Liveness:
    if actor.motion.kind == "gone":
        return "dead"
    return "never-wakes" if actor.held else "unseen"


def _class(actor: Actor, candidate: Candidate) -> str:
    phase = candidate.phase or _phase(actor)
    if candidate.cause != "user-code-blocked" or phase not in ("reward", "rollout"):
        return candidate.cause
    if phase == "reward":
        return "reward-blocked"
    return "rollout-engine-dead" if candidate.liveness == "dead" else "rollout-engine-stalled"


def _title(actor: Actor) -> str:
    task = tasks.task_of(actor) or ray_code.title_of(actor.member)
    if task:
        return f"the Ray actor in {task} (pid {actor.pid})"
    if tasks.is_part_of_engine(actor):
        return f"the rollout engine's process {title(actor)}"
    return f"the driver (pid {actor.pid})"
