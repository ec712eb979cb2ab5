"""Jobs whose ranks are actors of Ray: who works on a task, in which thread, and who waits for whose
answer. Pure.

An actor without a task waits for its next call, so for its controller, and that for the actors
with one: in its main thread, in a thread of a pool, or in a coroutine of its event loop.
Ranks that ask, sleep and ask again: a sleep that ended is no progress, so such a wait is as old as
the last collective. What Ray's cluster reports of itself is put in words here as well.
"""

from __future__ import annotations

from dataclasses import replace

from grpo_doctor.hang.model.process import ray_code
from grpo_doctor.hang.model.process.proc import coroutine_of, without_others
from grpo_doctor.hang.model.process.progress import Activity, activity
from grpo_doctor.hang.model.process.stacks import Place, is_heartbeat, place_of
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.wording import seconds_text
from grpo_doctor_probes.evidence import ProcessLook, PythonThread, RayFact, Stack

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
    return tuple(a for a in view.procs if ray_code.drives(a.member, a.place.frames))


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
        rows = without_others(proc.blocked, proc.awaits)
        return replace(_as_thread(view, proc, loop.tid, place), blocked=rows)
    threads = [_as_thread(view, proc, thread.tid, place_of(thread)) for thread in carrying]
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


def _as_thread(view: JobView, proc: Process, tid: int, place: Place) -> Process:
    moved = activity_of(view, proc.pid, tid)
    return replace(proc, place=place, blocking_place=place, tid=tid, activity=moved)


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


_WHY = {
    "WORKER_DIED": "its process ended unexpectedly",
    "NODE_DIED": "its node died",
    "OWNER_DIED": "the process that started it died",
    "OUT_OF_MEMORY": "Ray's memory monitor killed it",
}
PENDING = "PENDING_NODE_ASSIGNMENT"
_STATES = {
    "PENDING_ARGS_AVAIL": "waits for the results of other tasks",
    "PENDING_OBJ_STORE_MEM_AVAIL": "waits for memory in the object store",
    "PENDING_ARGS_FETCH": "waits for its arguments to be copied to its node",
    "GETTING_AND_PINNING_ARGS": "waits for its arguments to be copied to its node",
    "PENDING_ACTOR_TASK_ARGS_FETCH": "waits for its arguments to be copied to its node",
    "PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY": "waits for its turn in the actor",
    "SUBMITTED_TO_WORKER": "waits for its turn in the actor",
}


def of_kind(view: JobView, kind: str) -> tuple[RayFact, ...]:
    """Return the facts of one kind."""
    return tuple(fact for fact in view.evidence.ray if fact.kind == kind)


def lacking(view: JobView, fact: RayFact) -> tuple[str, ...]:
    """Return resources of which all nodes together have fewer than it wants; of alike tasks, which
    may run one after the other, than each wants.
    """
    amounts = _total(view)
    if amounts is None:
        return ()
    count = 1 if fact.kind == "task" else fact.count
    return tuple(n for n, wanted in fact.wants.items() if wanted * count > amounts.get(n, 0.0))


def _total(view: JobView) -> dict[str, float] | None:
    return next((row.wants for row in of_kind(view, "has")), None)


def fact_text(view: JobView, fact: RayFact) -> str:
    """Return a fact as a clause: `Ray's actor RolloutActor (pid 7, node-a) died 70 s ago`."""
    if fact.kind == "has":
        return f"Ray's cluster has {_amounts(fact.wants)}"
    if fact.kind == "died":
        ago = f" {seconds_text(fact.age_s)} ago" if fact.age_s is not None else ""
        where = ", ".join(filter(None, (f"pid {fact.pid}" if fact.pid else "", fact.node)))
        place = f" ({where})" if where else ""
        return f"Ray's {fact.what}{place} died{ago}: {_WHY.get(fact.reason, fact.reason)}"
    if fact.kind == "task":
        return f"Ray's task {fact.what} {_state(view, fact)}"
    return f"a {fact.what} of Ray is pending: {_wanted(view, fact)}"


def awaited_fact(view: JobView) -> RayFact | None:
    """Return the task that the others wait for, as Ray has it; None where it reports none.

    One that can't start, else the oldest of those that have started no other.
    """
    rows = of_kind(view, "task") or of_kind(view, "pending")
    first = [fact for fact in rows if lacking(view, fact)]
    return max(first or rows, key=lambda fact: fact.age_s or 0.0, default=None)


def _state(view: JobView, fact: RayFact) -> str:
    age = f" for {seconds_text(fact.age_s)}" if fact.age_s is not None else ""
    if fact.reason == PENDING:
        return f"has been pending{age}: {_wanted(view, fact)}"
    if fact.reason in _STATES:
        return f"{_STATES[fact.reason]}{f', {age[5:]} so far' if age else ''}"
    where = ", ".join(filter(None, (f"pid {fact.pid}" if fact.pid else "", fact.node)))
    return f"has run{age}{f' ({where})' if where else ''}"


def _wanted(view: JobView, fact: RayFact) -> str:
    if not fact.wants:
        return "it wants no resource: its actor, or a process for it, has not started"
    many = f"{fact.count} times " if fact.count > 1 else ""
    amounts, short = _total(view) or {}, lacking(view, fact)
    has = ", ".join(f"{_number(amounts.get(name, 0.0))} {name}" for name in short)
    why = f", and the cluster has {has}" if short else ", which is not free on any node now"
    return f"it wants {many}{_amounts(fact.wants)}{why}"


def _amounts(wants: dict[str, float]) -> str:
    return " + ".join(f"{_number(n)} {name}" for name, n in wants.items()) or "nothing"


def _number(amount: float) -> str:
    return f"{amount:.10g}"
