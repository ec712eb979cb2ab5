"""Processes that work for a rank: dataloader workers, children, Ray tasks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from grpo_doctor.hang.catalogue import advice
from grpo_doctor.hang.causes.candidate import (
    Candidate,
    Case,
    Sink,
    asleep_for,
    blocked_call,
    blocked_class,
    doing,
    in_phase,
    is_blocked_in,
    kernel_item,
    place_text,
    process_item,
    ranks_of,
    stack_item,
    standstill,
    still_item,
    title,
    working_class,
)
from grpo_doctor.hang.causes.connections import blocked_io
from grpo_doctor.hang.causes.engine import rollout_engine
from grpo_doctor.hang.causes.host import cpu
from grpo_doctor.hang.causes.locks import storage, waits_in_fork
from grpo_doctor.hang.model.process.progress import BUSY_SHARE
from grpo_doctor.hang.model.process.stacks import short, works_for_pool
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.model.waiting import tasks
from grpo_doctor.hang.model.waiting.wakeups import family, has_succeeded, most_telling, rests
from grpo_doctor.hang.verdict import Item
from grpo_doctor.hang.wording import ranks_text, seconds_text, verb


def data_loader(case: Case) -> Iterator[Candidate]:
    """Looks through the loader's queue at its workers."""
    for proc in case.idle:
        if waits_for_loader(case.view, proc):
            yield from _loader(case.view, proc)


def waits_for_loader(view: JobView, proc: Process) -> bool:
    """Return whether it waits in a loader, or loads data although it has loader processes."""
    if proc.place.call == "loader":
        return True
    children = view.children(proc.pid)
    has_loaders = any(child.member.role == "dataloader" for child in children)
    return proc.place.purpose == "dataload" and has_loaders


def _loader(view: JobView, proc: Process) -> Iterator[Candidate]:
    own = family(view, view.children(proc.pid))  # a fork server is between, with some
    workers = [child for child in own if child.member.role == "dataloader"]
    # One that has succeeded read its shard to the end.
    workers = [worker for worker in workers if not has_succeeded(worker)]
    names = {short(frame.function) for frame in proc.place.frames}
    if not workers and names.isdisjoint(("_try_get_data", "_get_data")):
        return  # it loads in the training process
    stuck = [worker for worker in workers if not worker.activity.progresses]
    halted = [worker for worker in workers if worker.cannot_run]
    if workers and len(stuck) < len(workers) and not halted:
        return  # at least one prepares a batch
    guilty = halted or [worker for worker in stuck if not rests(worker)] or stuck
    worker = f"{title(guilty[0])} {doing(guilty[0])}" if guilty else "none is left"
    candidate = Candidate(
        cause="dataload-blocked",
        reason=f"waits for its dataloader workers: {worker}",
        evidence=(stack_item(proc), *map(process_item, guilty[:4]), still_item(proc)),
        sink=Sink.HELPER,
        liveness="never-wakes" if halted else "unseen",
        phase="dataload",
        node=guilty[0].node if guilty else None,
        fixes=advice("loader"),
        confirm=tuple(worker.shell("py-spy dump --pid {pid}") for worker in guilty[:1]),
    ).of(proc)
    stopped = bool(guilty) and guilty[0].activity.kind == "stopped"
    yield candidate.continued(guilty[0]) if stopped else candidate


_LOST_FOR_EVER = (
    "No: the task is lost, and its result never arrives. End the job and restart it from its "
    "last checkpoint."
)
_SHOWS_ITS_END = ("file", "fifo-open", "file-lock", "sleep")
_ASKS = ("socket-receive", "socket-connect", "pipe-read")
# Also of `multiprocess`, the fork that datasets and evaluate use.
_POOL_CODE = re.compile(r"multiprocess\w*/pool")
_FOR_RESULTS, _FOR_WORKERS = "_handle_results", "_handle_workers"  # threads of every pool


def child_processes(case: Case) -> Iterator[Candidate]:
    """Looks through the wait into the process that is waited for."""
    for proc in asleep_for("vfork", case.hosts):
        yield _starts(case.view, proc)
    for proc in case.idle:
        if waits_for_loader(case.view, proc):
            continue
        waits = _waits_for_child(proc)
        candidate = _child(case.view, proc) if waits else _beside(case.view, proc)
        if candidate is not None:
            yield candidate


def _starts(view: JobView, proc: Process) -> Candidate:
    """In vfork a parent sleeps until its child has begun its own program."""
    children = view.children(proc.pid)
    youngest = max(children, key=lambda child: child.member.started_ticks, default=None)
    child = f": {title(youngest)} {doing(youngest)}" if youngest is not None else ""
    return Candidate(
        cause="child-stuck",
        reason=f"waits for a child that does not start its own program{child}{in_phase(proc)}",
        evidence=(kernel_item(proc), *standstill(proc)),
        sink=Sink.HOLDER,
        node=youngest.node if youngest is not None else None,
        fixes=advice("program"),
        confirm=(proc.shell("ps -o pid,stat,wchan:20,args --ppid {pid}"),),
    ).of(proc)


def _beside(view: JobView, proc: Process) -> Candidate | None:
    """Return the cause of a wait for no visible process, while a process of the rank computes or
    is stopped. Between two polls no descriptor shows what a rank waits for, and a connection that
    was not accepted yet has no other end.
    """
    hold = proc.hold
    if hold is not None and (hold.peers or hold.kind in _SHOWS_ITS_END):
        return None
    own = family(view, view.children(proc.pid))
    busy = [child for child in own if _works_for(proc, child)]
    if busy:
        return _works(proc, busy)
    halted = [child for child in own if child.activity.kind in ("stopped", "frozen")]
    if not halted:
        return None
    child = most_telling(halted) or halted[0]
    reason = f"waits{in_phase(proc)} while {title(child)} {doing(child)}"
    candidate = replace(
        _waiting(proc, reason, (process_item(child),)),
        liveness="never-wakes" if is_blocked_in(proc, *_ASKS) else "unseen",
        node=child.node,
    )
    return candidate.continued(child) if child.activity.kind == "stopped" else candidate


def _works_for(proc: Process, child: Process) -> bool:
    same = proc.phase is not None and proc.phase in (child.member.role, child.phase)
    return same and child.activity.progresses and child.activity.cpu_share >= BUSY_SHARE


def _waits_for_child(proc: Process) -> bool:
    if is_blocked_in(proc, "child") or proc.place.call == "child":
        return True
    threads = proc.python_threads[1:]
    return proc.place.call == "pool" and not any(map(works_for_pool, threads))


def _child(view: JobView, proc: Process) -> Candidate | None:
    children = _awaited(view, proc)
    if not children:
        seen = is_blocked_in(proc, "child")
        return _waiting(proc, f"waits for a child process{in_phase(proc)}", ()) if seen else None
    everyone = family(view, children)
    working = [part for part in everyone if part.activity.progresses or part.ended_meanwhile]
    hold = proc.hold
    unknown = hold is not None and hold.kind == "child" and not set(hold.peers) <= set(view.by_pid)
    if working or unknown:  # a process that was not there when the job was found
        return _works(proc, working or children)
    deepest = _deepest(view, children)
    if waits_in_fork(deepest):
        return _forked(proc, deepest)
    if _writes_to(proc, deepest):
        return _full_pipe(proc, deepest)
    # Executors of `concurrent.futures` notice a dead worker; pools of `multiprocessing` do not.
    in_pool = any(_POOL_CODE.search(frame.file) for frame in proc.place.frames)
    lost = in_pool and all(rests(child) or child.cannot_run for child in children)
    hard = lost or any(child.cannot_run for child in children)
    says = _lost(proc) if lost else f"its child {title(deepest)} {doing(deepest)}"
    reason = f"waits{in_phase(proc)}{' forever' if hard else ''}: {says}"
    items = tuple(process_item(child) for child in dict.fromkeys([deepest, *children]))
    if lost and not _takes_results(proc):
        items = (*_unpickled(view), *items)
    return replace(
        _waiting(proc, reason, items[:3]),
        liveness="never-wakes" if hard else "unseen",
        node=None if lost else deepest.node,
        can_go_on=_LOST_FOR_EVER if lost else "",
    )


def _lost(proc: Process) -> str:
    if _takes_results(proc):
        return "a pool worker died and its task is lost: all other workers are idle"
    return (
        "all workers of its pool are idle, and the pool's result thread has ended. "
        "That happens when a result or an exception can't be unpickled"
    )


def _takes_results(proc: Process) -> bool:
    """Whether the pool's thread for results lives, as far as its other threads can be seen."""
    names = {
        short(frame.function)
        for thread in proc.python_threads
        for frame in thread.frames
        if _POOL_CODE.search(frame.file)
    }
    return _FOR_RESULTS in names or _FOR_WORKERS not in names


def _unpickled(view: JobView) -> tuple[Item, ...]:
    """The last words of that thread, in a log: a traceback's last line has no indentation."""
    for log in view.evidence.logs:
        begins = [number for number, line in enumerate(log.lines) if _FOR_RESULTS in line]
        after = log.lines[begins[-1] + 1 :] if begins else ()
        messages = [line for line in after if line[:1].strip() and not line.startswith("Traceback")]
        if messages:
            return (Item("log", None, messages[0]),)
    return ()


def _awaited(view: JobView, proc: Process) -> list[Process]:
    """The children that it may be waiting for: those at the other end of its wait, else all."""
    own = [child for child in view.children(proc.pid) if child.member.role != "dataloader"]
    own = [
        child for child in own if "tracker" not in child.member.name and not has_succeeded(child)
    ]
    awaited_pids = proc.hold.peers if proc.hold is not None else ()
    return [child for child in own if child.pid in awaited_pids] or own


def _writes_to(proc: Process, child: Process) -> bool:
    """Whether the process is blocked in a write that this rank alone could read."""
    hold = blocked_call(child)
    if hold is None or hold.kind != "pipe-write" or not hold.peers_known:
        return False
    return set(hold.peers) - {child.pid} == {proc.pid}  # a fork holds both ends of its own pipe


def _full_pipe(proc: Process, child: Process) -> Candidate:
    """Return the cause of a rank and its child that wait for each other."""
    reason = (
        f"waits{in_phase(proc)} for its child {title(child)}, which writes to a full pipe that "
        "only this rank reads"
    )
    return replace(
        _waiting(proc, reason, (process_item(child),)),
        liveness="unseen" if proc.python_threads[1:] else "never-wakes",
        fixes=advice("pipe write"),
        can_go_on="Only if the rank reads that pipe, or the child is ended.",
    )


def _forked(proc: Process, child: Process) -> Candidate:
    reason = (
        f"waits for its child {title(child)}, which waits for a lock that was held when it was "
        f"forked, at {place_text(child.place)}"
    )
    return replace(
        _waiting(proc, reason, (process_item(child),)),
        cause="lock-held",
        sink=Sink.HOLDER,
        liveness="never-wakes",
        node=child.node,
        fixes=advice("spawn"),
    )


def _waiting(proc: Process, reason: str, items: tuple[Item, ...]) -> Candidate:
    return Candidate(
        cause="child-stuck",
        reason=reason,
        evidence=(*items, *standstill(proc)),
        sink=Sink.HELPER,
        fixes=advice("child"),
        confirm=(proc.shell("ps -o pid,stat,wchan:20,etime,args --ppid {pid}"),),
    ).of(proc)


def _works(proc: Process, working: Sequence[Process]) -> Candidate:
    child = most_telling(working) or working[0]
    return Candidate(
        cause="" if proc.place.long_work is not None else working_class(proc, child),
        reason=f"waits{in_phase(proc)} for its child {title(child)}, which {doing(child)}",
        evidence=(process_item(child), stack_item(proc)),
        sink=Sink.WORKER,
        liveness="computing" if proc.place.long_work is None else "progressing",
        node=child.node,
        fixes=advice("work"),
    ).of(proc)


def _deepest(view: JobView, children: Sequence[Process]) -> Process:
    """The process at the end of the chain of children: a shell's child, not the shell."""
    deepest = min(children, key=lambda child: (not child.cannot_run, rests(child), child.pid))
    visited = {deepest.pid}
    while not deepest.cannot_run:
        below = [child for child in view.children(deepest.pid) if child.pid not in visited]
        hold = deepest.hold
        if not below or (hold is not None and hold.kind not in ("child", "other", "poll")):
            return deepest
        deepest = min(below, key=lambda child: (not child.cannot_run, child.pid))
        visited.add(deepest.pid)
    return deepest


_OF_A_TASK = (child_processes, storage, rollout_engine, cpu, blocked_io)
_ROLLOUT = ("generat", "rollout", "sample")
MOST_CALLERS = 3


_SINK_OF_HALTED = {"stopped": Sink.PROCESS, "frozen": Sink.PROCESS, "gone": Sink.ENDED}


def ray_tasks(case: Case) -> Iterator[Candidate]:
    """Ranks that ask for an answer themselves; and where all are idle, who has a task."""
    for proc in case.suspects:
        if proc.asks:
            yield _asking(case.view, proc)
        elif proc.is_idle:
            yield _not_called(proc)
    if case.suspects or not tasks.idle_ranks(case.view):
        return
    for proc in tasks.at_work(case.view):
        yield _unanswered(case.view, proc) if proc.asks else _at_work(case, proc)


def _asking(view: JobView, proc: Process) -> Candidate:
    workers = [pending for pending in tasks.pending(view) if pending.pid != proc.pid]
    works = any(worker.activity.progresses for worker in workers)
    fact = tasks.awaited_fact(view) if not works else None
    items = (Item("ray", None, tasks.fact_text(view, fact)),) if fact is not None else ()
    source, where = "that no process of this host computes", in_phase(proc)
    if workers:
        task = workers[0].task or "a process"
        source = f"from {task} ({title(workers[0])}), which {doing(workers[0])}"
    elif fact is not None:
        source, where = f"{where.strip()}: {tasks.fact_text(view, fact)}", ""
    return Candidate(
        cause=blocked_class(proc),
        reason=f"waits for a Ray result {source}{where}",
        evidence=(*items, *map(process_item, workers[:3]), *standstill(proc)),
        sink=Sink.ANSWER,
        liveness="computing" if works else "unseen",
        node=workers[0].node if workers else None,
        fixes=advice("Ray result"),
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
        fixes=advice("Ray method"),
        confirm=("ray list tasks --filter state=RUNNING",),
    )


def _unanswered(view: JobView, proc: Process) -> Candidate:
    asking, fact = _asking(view, proc), tasks.awaited_fact(view)
    return replace(
        asking,
        # An actor on another host may be at it, but not at what the cluster can never start.
        liveness="outside" if fact is not None and tasks.lacking(view, fact) else "computing",
        whole=_sentence(view, proc, asking.reason),
        node=proc.node,
        still_s=tasks.quiet_s(view),
    )


def _sentence(view: JobView, proc: Process, reason: str) -> str:
    idle = [proc.rank for proc in tasks.idle_ranks(view) if proc.rank is not None]
    return f"{_title(proc)} {reason}; {ranks_text(idle)} {verb(idle, 'has')} no task until then"


def _at_work(case: Case, proc: Process) -> Candidate:
    alone = replace(case, suspects=(proc,))
    candidates = (
        candidate for cause in _OF_A_TASK for candidate in cause(alone) if not candidate.culprits
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
        sink=_SINK_OF_HALTED.get(proc.activity.kind, Sink.COUNTERS),
        liveness="dead"
        if proc.activity.kind == "gone"
        else "never-wakes"
        if proc.cannot_run
        else "unseen",
    ).of(proc)
    stopped = proc.activity.kind == "stopped"
    return candidate.continued(proc, "its task must resume immediately") if stopped else candidate


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
        fixes=advice("await"),
        confirm=(proc.shell("ss -tnp | grep pid={pid}  # whose response it awaits"),),
    ).of(proc)


def _phase(proc: Process) -> str | None:
    name = proc.actor.lower()
    named_after = "reward" if "reward" in name else None
    generates = any(word in name for word in _ROLLOUT)
    return proc.phase or named_after or ("rollout" if generates else None)


def _class(proc: Process, candidate: Candidate) -> str:
    phase = candidate.phase or _phase(proc)
    if candidate.cause != "user-code-blocked" or phase not in ("reward", "rollout"):
        return candidate.cause
    if phase == "reward":
        return "reward-blocked"
    return "rollout-engine-dead" if candidate.liveness == "dead" else "rollout-engine-stalled"


def _title(proc: Process) -> str:
    task = proc.task or proc.actor
    if task:
        return f"the Ray actor in {task} ({proc.name})"
    if proc.is_part_of_engine:
        return f"the rollout engine's process {title(proc)}"
    return f"the driver ({proc.name})"
