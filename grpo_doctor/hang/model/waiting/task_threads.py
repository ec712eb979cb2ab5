"""The thread of an actor that does its task: where it stands, and how it moved. Pure.

An actor's main thread waits in Ray's loop, and wakes by Ray's clock, while threads of a pool do
what its coroutines gave them; so their moves count, and not the main one's.
"""

from __future__ import annotations

from dataclasses import replace

from grpo_doctor.hang.model.process import ray_code
from grpo_doctor.hang.model.process.places import place_of
from grpo_doctor.hang.model.process.progress import Motion, motion
from grpo_doctor.hang.model.scene import Actor, Scene
from grpo_doctor_probes.evidence import ProcessLook, PythonThread, Stack


def seen_through(scene: Scene, actor: Actor) -> Actor:
    """`actor` as the thread that decides for it: one that gets on, else the one that has stood for
    the longest; without any at a task its event loop; itself where its main thread does the task.
    """
    main = next((one for one in actor.python_threads if one.tid == actor.pid), None)
    if actor.held or main is None or not ray_code.in_loop(main.frames):
        return actor
    carrying = [one for one in actor.python_threads if one is not main and ray_code.carries(one)]
    loop = event_loop_of(actor)
    if not carrying and loop is not None:
        return replace(actor, motion=motion_of(scene, actor.pid, loop.tid), tid=loop.tid)
    seen = [_as_thread(scene, actor, one) for one in carrying]
    return min(seen, key=_decides, default=actor)


def event_loop_of(actor: Actor) -> PythonThread | None:
    """The thread of its event loop while that waits; None where it has none, or it is at work."""
    loops = [one for one in actor.python_threads if one.name.startswith("AsyncIO Thread")]
    return next((one for one in loops if ray_code.waits_for_events(one)), None)


def motion_of(scene: Scene, pid: int, tid: int) -> Motion:
    """What one thread did between the first look and the last."""
    looks = [_of_thread(one, tid) for look in scene.evidence.looks for one in look.processes
             if one.pid == pid]  # fmt: skip
    stacks = [_stack_of(look, pid, tid) for look in scene.evidence.stacks]
    known = [one for one in looks if one is not None]
    if not known:
        return Motion("unknown")
    return motion(known[0] if len(known) > 1 else None, known[-1], stacks)


def _of_thread(look: ProcessLook, tid: int) -> ProcessLook | None:
    """A process as if this were its only thread, and nothing were known of its files."""
    thread = next((one for one in look.threads if one.tid == tid), None)
    if thread is None:
        return None
    return replace(
        look, threads=(thread,), cpu_ticks=thread.cpu_ticks, state=look.state,
        read_bytes=0, written_bytes=0, major_faults=0,
    )  # fmt: skip


def _stack_of(look: tuple[Stack, ...], pid: int, tid: int) -> Stack | None:
    for stack in look:
        if stack.pid == pid and not stack.native:
            threads = tuple(one for one in stack.threads if one.tid == tid)
            return replace(stack, threads=threads) if threads else None
    return None


def _as_thread(scene: Scene, actor: Actor, thread: PythonThread) -> Actor:
    place = place_of(thread)
    moved = motion_of(scene, actor.pid, thread.tid)
    return replace(actor, place=place, deed=place, tid=thread.tid, motion=moved)


def _decides(actor: Actor) -> tuple[bool, bool, float, int]:
    """Who gets on comes first: the others of a pool may wait for its lock. Then the user's code."""
    still_s = actor.motion.still_s
    users = actor.place.user is not None
    return not actor.motion.progresses, not users, -(still_s or 0.0), actor.tid
