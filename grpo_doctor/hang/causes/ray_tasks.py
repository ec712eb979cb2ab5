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
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.model.waiting import tasks
from grpo_doctor.hang.verdict import Fix, Item
from grpo_doctor.hang.wording import ranks_text, seconds_text, verb

_FAMILIES = (child_processes, storage, rollout_engine, cpu, blocked_io)
_ROLLOUT = ("generat", "rollout", "sample")
MOST_CALLERS = 3


_HELD = {"stopped": Sink.PROCESS, "frozen": Sink.PROCESS, "gone": Sink.ENDED}


def propose(case: Case) -> Iterator[Candidate]:
    """Ranks that ask for an answer themselves; and where all are idle, who has a task."""
    for proc in case.suspects:
        if tasks.asks(proc):
            yield _asking(case.view, proc)
        elif tasks.is_idle(proc):
            yield _not_called(proc)
    if case.suspects or not tasks.idle_ranks(case.view):
        return
    for proc in tasks.at_work(case.view):
        yield _unanswered(case.view, proc) if tasks.asks(proc) else _at_work(case, proc)


def _asking(view: JobView, proc: Process) -> Candidate:
    workers = [pending for pending in tasks.pending(view) if pending.pid != proc.pid]
    works = any(worker.activity.progresses for worker in workers)
    source = _source(workers) if workers else "that no process of this host computes"
    return Candidate(
        cause=blocked_class(proc),
        reason=f"waits for a Ray result {source}{in_phase(proc)}",
        evidence=(*map(process_item, workers[:3]), *standstill(proc)),
        sink=Sink.ANSWER,
        liveness="computing" if works else "unseen",
        node=workers[0].node if workers else None,
        fixes=(Fix("Give ray.get a timeout, and request no more resources than the cluster has."),),
        confirm=("ray list tasks --filter state!=FINISHED  # one that waits for resources?",),
    ).of(proc)


def _not_called(proc: Process) -> Candidate:
    """Others are in a collective, and this one's method has come to its end without it."""
    return Candidate(
        cause="collective-skipped",
        culprits=ranks_of(proc),
        reason="has no Ray task: its method has ended, or the driver has not called it",
        evidence=(Item("proc", proc.rank, title(proc)), stack_item(proc)),
        sink=Sink.ANSWER,
        fixes=(Fix("Call the method on all actors of the group before waiting for any of them."),),
        confirm=("ray list tasks --filter state=RUNNING",),
    )


def _source(workers: list[Process]) -> str:
    first = workers[0]
    return f"from {tasks.task_of(first) or 'a process'} ({title(first)}), which {doing(first)}"


def _unanswered(view: JobView, proc: Process) -> Candidate:
    """Return the cause of a call that no actor executes: its actor died, or it never started."""
    asking = _asking(view, proc)
    return replace(
        asking,
        liveness="computing",  # an actor on another host may be at it: that is not seen here
        whole=_sentence(view, proc, asking.reason),
        node=proc.node,
        still_s=tasks.quiet_s(view),
    )


def _sentence(view: JobView, proc: Process, reason: str) -> str:
    idle = [proc.rank for proc in tasks.idle_ranks(view) if proc.rank is not None]
    return f"{_title(proc)} {reason}; {ranks_text(idle)} {verb(idle, 'has')} no task until then"


def _at_work(case: Case, proc: Process) -> Candidate:
    """The actor, or the driver, in whose task everything stands."""
    alone = replace(case, suspects=(proc,))
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
        best = _halted(proc)
    elif tasks.awaits_coroutine(proc):
        best = _in_coroutine(proc)
    return replace(
        best,
        cause=_class(proc, best),
        whole=_sentence(case.view, proc, best.reason),
        node=best.node or proc.node,
        phase=best.phase or _phase(proc),
        evidence=(*best.evidence, *_callers(case.view, proc)),
    )


def _callers(view: JobView, proc: Process) -> tuple[Item, ...]:
    """The driver and the controllers, which wait for this one's answer."""
    callers = [caller for caller in tasks.controllers(view) if caller.pid != proc.pid]
    return tuple(
        Item("proc", None, f"{title(caller)} waits for the result{in_phase(caller)}")
        for caller in callers[:MOST_CALLERS]
    )


def _halted(proc: Process) -> Candidate:
    candidate = Candidate(
        cause="user-code-blocked",
        reason=doing(proc),
        evidence=(process_item(proc), stack_item(proc)),
        sink=_HELD.get(proc.activity.kind, Sink.COUNTERS),
        liveness=_liveness(proc),
    ).of(proc)
    stopped = proc.activity.kind == "stopped"
    return (
        candidate.continued(proc.pid, "its task must resume immediately") if stopped else candidate
    )


def _in_coroutine(proc: Process) -> Candidate:
    """Its event loop has nothing to run, so that its coroutines all await something."""
    quiet_s = proc.activity.still_s
    since = f", which last ran {seconds_text(quiet_s)} ago" if quiet_s is not None else ""
    return Candidate(
        cause="user-code-blocked",
        reason="awaits something in a coroutine; stacks do not show the line",
        evidence=(Item("proc", None, f"{title(proc)}: its event loop is idle{since}"),),
        sink=Sink.ANSWER,
        liveness="outside",  # a server may be what it awaits
        fixes=(Fix("Give the await a timeout: asyncio.wait_for(..., timeout=60)."),),
        confirm=(f"ss -tnp | grep pid={proc.pid}  # whose response it awaits",),
    ).of(proc)


def _phase(proc: Process) -> str | None:
    """The phase of its stack, else of its name: `RewardLoopWorker`, `RolloutServer`."""
    name = ray_code.title_of(proc.member).lower()
    named_after = "reward" if "reward" in name else None
    generates = any(word in name for word in _ROLLOUT)
    return proc.phase or named_after or ("rollout" if generates else None)


def _liveness(proc: Process) -> Liveness:
    if proc.activity.kind == "gone":
        return "dead"
    return "never-wakes" if proc.cannot_run else "unseen"


def _class(proc: Process, candidate: Candidate) -> str:
    phase = candidate.phase or _phase(proc)
    if candidate.cause != "user-code-blocked" or phase not in ("reward", "rollout"):
        return candidate.cause
    if phase == "reward":
        return "reward-blocked"
    return "rollout-engine-dead" if candidate.liveness == "dead" else "rollout-engine-stalled"


def _title(proc: Process) -> str:
    task = tasks.task_of(proc) or ray_code.title_of(proc.member)
    if task:
        return f"the Ray actor in {task} (pid {proc.pid})"
    if tasks.is_part_of_engine(proc):
        return f"the rollout engine's process {title(proc)}"
    return f"the driver (pid {proc.pid})"
