"""Jobs whose ranks are actors of Ray: who works on a task, in which thread, and who waits for whose
answer. Pure.

An actor without a task waits for its next call, so for its controller, and that for the actors
with one: in its main thread, in a thread of a pool, or in a coroutine of its event loop.
Ranks that ask, sleep and ask again: a sleep that ended is no progress, so such a wait is as old as
the last collective.
"""

from __future__ import annotations

from dataclasses import replace

from grpo_doctor.hang.model.process import ray_code
from grpo_doctor.hang.model.process.proc import coroutine_of, without_others
from grpo_doctor.hang.model.process.progress import Activity, activity
from grpo_doctor.hang.model.process.stacks import is_heartbeat, place_of
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor_probes.evidence import ProcessLook, PythonThread, Stack

_AT_WORK_FOR_OTHERS = ("engine", "engine-worker", "server")


def own_threads(view: JobView, proc: Process) -> frozenset[int]:
    """Of a process of Ray's the threads whose last run says since when it stands: those that do its
    tasks, else all that run Python; empty for all others. Ray's own threads wake many times a
    second whether or not there is work, as does the main one of who has nothing to do.
    """
    if not (proc.actor or proc in drivers(view)):
        return frozenset()
    doing = frozenset(thread.tid for thread in proc.python_threads if ray_code.carries(thread))
    loop = event_loop_of(proc)
    if not doing and loop is not None and awaits_coroutine(proc):
        return frozenset({loop.tid})
    return doing or frozenset(thread.tid for thread in proc.python_threads if thread.frames)


def idle_ranks(view: JobView) -> tuple[Process, ...]:
    """Return ranks for which only the driver can wait; none while others need them."""
    ranks = tuple(view.by_rank.values())
    if any(proc.waits for proc in ranks):
        return ()
    return tuple(proc for proc in ranks if proc.is_idle)


def drivers(view: JobView) -> tuple[Process, ...]:
    """The programs that call the actors, of this host."""
    return tuple(a for a in view.procs if a.drives)


def controllers(view: JobView) -> tuple[Process, ...]:
    """Who waits for the answers of others, the driver first: verl's and OpenRLHF's single
    controller is an actor that the driver waits for.
    """
    own = drivers(view)
    pids = {proc.pid for proc in own}
    procs = [proc for proc in view.procs if proc.pid not in pids and proc.actor]
    return tuple(proc for proc in (*own, *procs) if proc.asks)


def at_work(view: JobView) -> tuple[Process, ...]:
    """Return actors that have a task and ask no other, except ranks, as the thread that moved;
    without any, who asks deepest. An actor's title has its method while a coroutine of it waits.

    A stopped actor keeps its title, so its task; Ray reports one that has died to the driver.
    """
    ranks = {proc.pid for proc in view.by_rank.values()}
    beside = [proc for proc in view.procs if proc.pid not in ranks]
    called = [seen_through(view, proc) for proc in beside if proc.task]
    own = drivers(view)
    pids = {proc.pid for proc in (*called, *own)}
    needed = (proc for proc in beside if proc.actor or proc.is_part_of_engine)
    halted = [proc for proc in needed if proc.pid not in pids and proc.cannot_run]
    answering = tuple(proc for proc in [*called, *own, *halted] if not proc.asks)
    if answering:
        return answering
    working = tuple(proc for proc in beside if _works_for_others(view, proc))
    return working or _deepest([*own, *called])


def pending(view: JobView) -> tuple[Process, ...]:
    """Who may give the answers that are waited for: ranks that work on a task included."""
    ranks = [proc for proc in view.by_rank.values() if not proc.is_idle and not proc.waits]
    return tuple(proc for proc in [*ranks, *at_work(view)] if not proc.asks)


def awaits_coroutine(proc: Process) -> bool:
    """Return whether its threads have no task while an event loop of its own waits for something: a
    coroutine has no stack, so that nothing says where it stands.
    """
    idle = not proc.cannot_run and ray_code.in_loop(proc.place.frames)
    return idle and event_loop_of(proc) is not None


def quiet_s(view: JobView) -> float | None:
    """Return seconds since a rank began its last collective; None where no recording shows it."""
    ages = [
        (pace.taken_ns - pace.last_enqueued_ns) / 1e9
        for pace in view.matching.paces
        if pace.taken_ns and pace.last_enqueued_ns is not None
    ]
    return min(ages, default=None)


def _works_for_others(view: JobView, proc: Process) -> bool:
    """Return whether it progresses as an engine, server or actor's child: an actor may await it."""
    parent = view.by_pid.get(proc.member.parent)
    below = parent is not None and bool(parent.actor)
    awaited = proc.member.role in _AT_WORK_FOR_OTHERS or below
    return awaited and proc.activity.progresses and not proc.serves_ray


def _deepest(asking: list[Process]) -> tuple[Process, ...]:
    """Of those that ask for answers the one that was called last: who has the user's own code
    before those that only pass calls on, the driver last of all.
    """

    def depth(proc: Process) -> tuple[bool, bool]:
        is_actor = bool(proc.actor)
        return is_actor, is_actor and proc.place.user is not None

    return tuple(sorted(asking, key=depth)[-1:])


def seen_through(view: JobView, proc: Process) -> Process:
    """Return `proc` as its deciding thread: one that makes progress, else the one that waits for
    the longest; without any at a task its event loop; itself where its main thread does the task.
    """
    main = next((thread for thread in proc.python_threads if thread.tid == proc.pid), None)
    if proc.cannot_run or main is None or not ray_code.in_loop(main.frames):
        return proc
    carrying = [
        thread for thread in proc.python_threads if thread is not main and ray_code.carries(thread)
    ]
    loop = event_loop_of(proc)
    if not carrying and loop is not None:
        own = next(iter(coroutine_of(proc.awaits, None)), None)
        place = place_of(own) if own is not None else proc.place
        moved = activity_of(view, proc.pid, loop.tid)
        rows = without_others(proc.blocked, proc.awaits)
        return replace(
            proc, place=place, blocking_place=place, tid=loop.tid, activity=moved, blocked=rows
        )
    threads = [_as_thread(view, proc, thread) for thread in carrying]
    return min(threads, key=_decides, default=proc)


def event_loop_of(proc: Process) -> PythonThread | None:
    """Return the thread of its event loop while that waits; None where it has none or is busy."""
    loops = [thread for thread in proc.python_threads if thread.name.startswith("AsyncIO Thread")]
    return next((thread for thread in loops if ray_code.waits_for_events(thread)), None)


def activity_of(view: JobView, pid: int, tid: int) -> Activity:
    """Return what one thread did between the first sample and the last."""
    looks = [_of_thread(process, tid) for look in view.evidence.looks for process in look.processes
             if process.pid == pid]  # fmt: skip
    stacks = [_stack_of(look, pid, tid) for look in view.evidence.stacks]
    present = [look for look in looks if look is not None]
    if not present:
        return Activity("unknown")
    return activity(present[0] if len(present) > 1 else None, present[-1], stacks)


def _of_thread(look: ProcessLook, tid: int) -> ProcessLook | None:
    """A process as if this were its only thread, and nothing were known of its files."""
    thread = next((candidate for candidate in look.threads if candidate.tid == tid), None)
    if thread is None:
        return None
    return replace(
        look, threads=(thread,), cpu_ticks=thread.cpu_ticks, state=look.state,
        read_bytes=0, written_bytes=0, major_faults=0,
    )  # fmt: skip


def _stack_of(look: tuple[Stack, ...], pid: int, tid: int) -> Stack | None:
    for stack in look:
        if stack.pid == pid and not stack.native:
            threads = tuple(thread for thread in stack.threads if thread.tid == tid)
            return replace(stack, threads=threads) if threads else None
    return None


def _as_thread(view: JobView, proc: Process, thread: PythonThread) -> Process:
    place = place_of(thread)
    moved = activity_of(view, proc.pid, thread.tid)
    return replace(proc, place=place, blocking_place=place, tid=thread.tid, activity=moved)


def _decides(proc: Process) -> tuple[bool, bool, float, int]:
    """Put who progresses first: others of a pool may wait for its lock. Then the user's code."""
    still_s = proc.activity.still_s
    users = proc.place.user is not None
    return not proc.activity.progresses, not users, -(still_s or 0.0), proc.tid


_AT_ONE_LINE = ("polling", "still")


def all_ask(view: JobView) -> bool:
    """Return whether every rank came back to one line, outside calls to other ranks, and no process
    of the job was seen to work for them.
    """
    ranks = view.by_rank.values()
    works = (
        proc.activity.progresses or proc.activity.library_works
        for proc in view.procs
        if not proc.serves_ray and proc.member.role != "launcher"
    )
    polls = any(proc.activity.kind == "polling" for proc in ranks)
    return polls and all(map(_asks, ranks)) and not view.elsewhere and not any(works)


def _asks(proc: Process) -> bool:
    ready = not proc.waits and not proc.is_idle
    return ready and bool(proc.place.frames) and proc.activity.kind in _AT_ONE_LINE


def asked_s(view: JobView) -> float | None:
    """Return for how long all ranks have asked, at most: since the last collective of any. None
    where they do not, or where no recorder shows it.
    """
    return quiet_s(view) if all_ask(view) else None


def asks_again(proc: Process) -> bool:
    """Return whether a line of the user's own sleeps again and again."""
    own = bool(proc.place.frames) and proc.place.user == proc.place.frames[0]
    return own and not proc.waits and proc.activity.kind == "polling"


def what_for(view: JobView, proc: Process) -> str:
    """Return what a rank asks for, after the place where it asks; empty where nothing shows it."""
    values = (row.values.get("path", "") for row in view.evidence.arguments if row.pid == proc.pid)
    path = next(filter(None, values), "")
    if path and asks_again(proc):
        return f" (path {path})"
    beside = [t for t in proc.python_threads[1:] if t.frames and not is_heartbeat(t.name)]
    own_queue = any(frame.file.endswith("/queue.py") for frame in proc.place.frames[:3])
    if own_queue and not beside and proc.place.call == "queue":
        return ", which no other Python thread of the process can fill"
    return ""
