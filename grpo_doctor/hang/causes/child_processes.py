"""Ranks that wait for a process of their own: a subprocess, a pool's worker, a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from grpo_doctor.hang.causes.candidate import Candidate, Case, Sink
from grpo_doctor.hang.causes.data_loader import waits_for_loader
from grpo_doctor.hang.causes.description import (
    asleep_for,
    doing,
    in_phase,
    is_blocked_in,
    kernel_item,
    place_text,
    process_item,
    stack_item,
    standstill,
    title,
    working_class,
)
from grpo_doctor.hang.causes.thread_locks import waits_in_fork
from grpo_doctor.hang.model.process.call_stack import works_for_pool
from grpo_doctor.hang.model.process.known_code import short
from grpo_doctor.hang.model.process.progress import BUSY_SHARE
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.model.waiting.chain import family, has_succeeded, most_telling, rests
from grpo_doctor.hang.verdict import Fix, Item

_LOST_FOR_EVER = (
    "No: the task is lost, and its result never arrives. End the job and restart it from its "
    "last checkpoint."
)
_SHOWS_ITS_END = ("file", "fifo-open", "file-lock", "sleep")
_ASKS = ("socket-receive", "socket-connect", "pipe-read")
_FOR_RESULTS, _FOR_WORKERS = "_handle_results", "_handle_workers"  # threads of every pool


def propose(case: Case) -> Iterator[Candidate]:
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
        fixes=(Fix("Check the program that is started: it may be on storage that hangs."),),
        confirm=(f"ps -o pid,stat,wchan:20,args --ppid {proc.pid}",),
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
    return candidate.continued(child.pid) if child.activity.kind == "stopped" else candidate


def _works_for(proc: Process, child: Process) -> bool:
    """Whether a child computes for what its rank is in."""
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
    if working or _just_started(view, proc):
        return _works(proc, working or children)
    deepest = _deepest(view, children)
    if waits_in_fork(deepest):
        return _forked(proc, deepest)
    lost = _in_old_pool(proc) and all(rests(child) or child.cannot_run for child in children)
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


def _in_old_pool(proc: Process) -> bool:
    """One of `multiprocessing`: executors of `concurrent.futures` notice a dead worker."""
    return any("multiprocessing/pool" in frame.file for frame in proc.place.frames)


def _lost(proc: Process) -> str:
    """Why no result comes although all workers are idle."""
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
        if "multiprocessing/pool" in frame.file
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


def _just_started(view: JobView, proc: Process) -> bool:
    """Whether it waits for a process that was not there when the job was found."""
    hold = proc.hold
    return hold is not None and hold.kind == "child" and not set(hold.peers) <= set(view.by_pid)


def _awaited(view: JobView, proc: Process) -> list[Process]:
    """The children that it may be waiting for: those at the other end of its wait, else all."""
    own = [child for child in view.children(proc.pid) if child.member.role != "dataloader"]
    own = [
        child for child in own if "tracker" not in child.member.name and not has_succeeded(child)
    ]
    awaited_pids = proc.hold.peers if proc.hold is not None else ()
    return [child for child in own if child.pid in awaited_pids] or own


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
        fixes=(Fix("Start the child with spawn, or fork before starting any thread."),),
    )


def _waiting(proc: Process, reason: str, items: tuple[Item, ...]) -> Candidate:
    return Candidate(
        cause="child-stuck",
        reason=reason,
        evidence=(*items, *standstill(proc)),
        sink=Sink.HELPER,
        fixes=(
            Fix("Give the wait a timeout (subprocess: timeout=, pool: .get(timeout))."),
            Fix("End the child when the timeout expires."),
        ),
        confirm=(f"ps -o pid,stat,wchan:20,etime,args --ppid {proc.pid}",),
    ).of(proc)


def _works(proc: Process, working: Sequence[Process]) -> Candidate:
    child = most_telling(working) or working[0]
    return Candidate(
        cause="" if proc.long_work is not None else working_class(proc, child),
        reason=f"waits{in_phase(proc)} for its child {title(child)}, which {doing(child)}",
        evidence=(process_item(child), stack_item(proc)),
        sink=Sink.WORKER,
        liveness="computing" if proc.long_work is None else "progressing",
        node=child.node,
        fixes=(Fix("Give the work a timeout."),),
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
