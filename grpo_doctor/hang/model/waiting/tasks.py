"""Jobs whose ranks are actors of Ray: who works on a task, in which thread, and who waits for whose
answer. Pure.

An actor without a task waits for its next call, so for its controller, and that for the actors
with one: in its main thread, in a thread of a pool, or in a coroutine of its event loop.
"""

from __future__ import annotations

from dataclasses import replace

from grpo_doctor.hang.model.process import ray_code
from grpo_doctor.hang.model.process.call_stack import place_of
from grpo_doctor.hang.model.process.progress import Motion, motion
from grpo_doctor.hang.model.scene import Actor, Scene
from grpo_doctor_probes.evidence import ProcessLook, PythonThread, Stack

_AT_WORK_FOR_OTHERS = ("engine", "engine-worker", "server")


def is_idle(actor: Actor) -> bool:
    """Whether it is able to work and has no task."""
    return not actor.held and not task_of(actor) and ray_code.in_loop(actor.place.frames)


def task_of(actor: Actor) -> str:
    """The method or function that it is called for, `Worker.update`; the actor's name alone where
    its title has no more; empty for all that have no task.
    """
    return ray_code.task_of(actor.member, actor.place.frames)


def asks(actor: Actor) -> bool:
    """Whether it waits for the answer of somebody's task, or sleeps between asking for it."""
    return not actor.held and (ray_code.asks(actor.place.frames) or _polls(actor))


def _polls(actor: Actor) -> bool:
    """Whether a framework's own line sleeps, as verl's controller does until samples are there."""
    asleep = any(row.kind == "sleep" for row in actor.blocked if row.tid == actor.tid)
    of_ray = ray_code.is_actor(actor.member) or actor.member.role == "ray"
    return of_ray and asleep and ray_code.in_framework(actor.place.frames)


def wakes_by_ray(actor: Actor) -> bool:
    """Return whether it wakes every second by Ray's own clock, which is no sign of progress."""
    return is_idle(actor) or asks(actor)


def own_threads(scene: Scene, actor: Actor) -> frozenset[int]:
    """Of a process of Ray's the threads whose last run says since when it stands: those that do its
    tasks, else all that run Python; empty for all others. Ray's own threads wake many times a
    second whether or not there is work, as does the main one of who has nothing to do.
    """
    if not (ray_code.is_actor(actor.member) or actor in drivers(scene)):
        return frozenset()
    doing = frozenset(thread.tid for thread in actor.python_threads if ray_code.carries(thread))
    loop = event_loop_of(actor)
    if not doing and loop is not None and awaits_coroutine(actor):
        return frozenset({loop.tid})
    return doing or frozenset(thread.tid for thread in actor.python_threads if thread.frames)


def idle_ranks(scene: Scene) -> tuple[Actor, ...]:
    """Return ranks for which only the driver can wait; none while others need them."""
    ranks = tuple(scene.by_rank.values())
    if any(actor.waits for actor in ranks):
        return ()
    return tuple(actor for actor in ranks if is_idle(actor))


def drivers(scene: Scene) -> tuple[Actor, ...]:
    """The programs that call the actors, of this host."""
    return tuple(a for a in scene.actors if ray_code.drives(a.member, a.place.frames))


def controllers(scene: Scene) -> tuple[Actor, ...]:
    """Who waits for the answers of others, the driver first: verl's and OpenRLHF's single
    controller is an actor that the driver waits for.
    """
    own = drivers(scene)
    pids = {actor.pid for actor in own}
    actors = [
        actor for actor in scene.actors if actor.pid not in pids and ray_code.is_actor(actor.member)
    ]
    return tuple(actor for actor in (*own, *actors) if asks(actor))


def at_work(scene: Scene) -> tuple[Actor, ...]:
    """Return actors that have a task and ask no other, except ranks, as the thread that moved;
    without any, who asks deepest. An actor's title has its method while a coroutine of it waits.

    A stopped actor keeps its title, so its task; Ray reports one that has died to the driver.
    """
    ranks = {actor.pid for actor in scene.by_rank.values()}
    beside = [actor for actor in scene.actors if actor.pid not in ranks]
    called = [seen_through(scene, actor) for actor in beside if task_of(actor)]
    own = drivers(scene)
    pids = {actor.pid for actor in (*called, *own)}
    halted = [
        actor for actor in beside if actor.pid not in pids and _is_needed(actor) and actor.held
    ]
    answering = tuple(actor for actor in [*called, *own, *halted] if not asks(actor))
    if answering:
        return answering
    working = tuple(actor for actor in beside if _works_for_others(scene, actor))
    return working or _deepest([*own, *called])


def pending(scene: Scene) -> tuple[Actor, ...]:
    """Who may give the answers that are waited for: ranks that work on a task included."""
    ranks = [actor for actor in scene.by_rank.values() if not is_idle(actor) and not actor.waits]
    return tuple(actor for actor in [*ranks, *at_work(scene)] if not asks(actor))


def awaits_coroutine(actor: Actor) -> bool:
    """Whether its threads have no task while an event loop of its own waits for something: a
    coroutine has no stack, so that nothing says where it stands.
    """
    idle = not actor.held and ray_code.in_loop(actor.place.frames)
    return idle and event_loop_of(actor) is not None


def quiet_s(scene: Scene) -> float | None:
    """Return seconds since a rank began its last collective; None where no recording shows it."""
    ages = [
        (rhythm.taken_ns - rhythm.last_enqueued_ns) / 1e9
        for rhythm in scene.matching.rhythms
        if rhythm.taken_ns and rhythm.last_enqueued_ns is not None
    ]
    return min(ages, default=None)


def is_part_of_engine(actor: Actor) -> bool:
    """Whether it is a rollout engine's core or one of that's workers."""
    return actor.member.role in ("engine", "engine-worker")


def _is_needed(actor: Actor) -> bool:
    """An actor, or a part of an engine that works for one."""
    return ray_code.is_actor(actor.member) or is_part_of_engine(actor)


def _works_for_others(scene: Scene, actor: Actor) -> bool:
    """Return whether it progresses as an engine, server or actor's child: an actor may await it."""
    parent = scene.by_pid.get(actor.member.parent)
    below = parent is not None and ray_code.is_actor(parent.member)
    awaited = actor.member.role in _AT_WORK_FOR_OTHERS or below
    return awaited and actor.motion.progresses and not ray_code.serves(actor.member)


def _deepest(asking: list[Actor]) -> tuple[Actor, ...]:
    """Of those that ask for answers the one that was called last: who has the user's own code
    before those that only pass calls on, the driver last of all.
    """

    def depth(actor: Actor) -> tuple[bool, bool]:
        is_actor = ray_code.is_actor(actor.member)
        return is_actor, is_actor and actor.place.user is not None

    return tuple(sorted(asking, key=depth)[-1:])


def seen_through(scene: Scene, actor: Actor) -> Actor:
    """Return `actor` as its deciding thread: one that makes progress, else the one that waits for
    the longest; without any at a task its event loop; itself where its main thread does the task.
    """
    main = next((thread for thread in actor.python_threads if thread.tid == actor.pid), None)
    if actor.held or main is None or not ray_code.in_loop(main.frames):
        return actor
    carrying = [
        thread for thread in actor.python_threads if thread is not main and ray_code.carries(thread)
    ]
    loop = event_loop_of(actor)
    if not carrying and loop is not None:
        return replace(actor, motion=motion_of(scene, actor.pid, loop.tid), tid=loop.tid)
    threads = [_as_thread(scene, actor, thread) for thread in carrying]
    return min(threads, key=_decides, default=actor)


def event_loop_of(actor: Actor) -> PythonThread | None:
    """Return the thread of its event loop while that waits; None where it has none or is busy."""
    loops = [thread for thread in actor.python_threads if thread.name.startswith("AsyncIO Thread")]
    return next((thread for thread in loops if ray_code.waits_for_events(thread)), None)


def motion_of(scene: Scene, pid: int, tid: int) -> Motion:
    """Return what one thread did between the first sample and the last."""
    looks = [_of_thread(process, tid) for look in scene.evidence.looks for process in look.processes
             if process.pid == pid]  # fmt: skip
    stacks = [_stack_of(look, pid, tid) for look in scene.evidence.stacks]
    present = [look for look in looks if look is not None]
    if not present:
        return Motion("unknown")
    return motion(present[0] if len(present) > 1 else None, present[-1], stacks)


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


def _as_thread(scene: Scene, actor: Actor, thread: PythonThread) -> Actor:
    place = place_of(thread)
    moved = motion_of(scene, actor.pid, thread.tid)
    return replace(actor, place=place, deed=place, tid=thread.tid, motion=moved)


def _decides(actor: Actor) -> tuple[bool, bool, float, int]:
    """Put who progresses first: others of a pool may wait for its lock. Then the user's code."""
    still_s = actor.motion.still_s
    users = actor.place.user is not None
    return not actor.motion.progresses, not users, -(still_s or 0.0), actor.tid
