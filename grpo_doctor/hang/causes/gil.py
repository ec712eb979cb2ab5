"""A C call that keeps Python's global lock."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_doctor.hang.causes.candidate import Candidate, Case, Sink
from grpo_doctor.hang.causes.wording import at, culprit, stack_item, still_item
from grpo_doctor.hang.model.process.call_stack import place_of
from grpo_doctor.hang.model.scene import Actor, Scene
from grpo_doctor.hang.verdict import Fix, Item
from grpo_doctor_probes.evidence import PythonThread

_RUNNING = "RD"
_ASKS_PER_S = 50  # 200 by default, fewer on a crowded machine; ordinary waits wake less often


def propose(case: Case) -> Iterator[Candidate]:
    """Ranks of which one thread lets no other run."""
    for actor in case.scene.by_rank.values():
        if not actor.held and actor.motion.kind != "working":
            yield from _held(case.scene, actor)


def _held(scene: Scene, actor: Actor) -> Iterator[Candidate]:
    """A thread that has the GIL in every look and does not let go: a C call that keeps it."""
    for thread in actor.python_threads:
        seen = actor.thread(thread.tid)
        if not thread.owns_gil or seen is None or not _owned_always(scene, actor, thread.tid):
            continue
        runs = seen.state in _RUNNING
        if runs and not _main_wants_gil(actor, thread):
            continue
        if not runs and actor.motion.cpu_share > 0.05:
            continue
        where = at(place_of(thread).user or thread.frames[0] if thread.frames else None)
        does = "computes" if runs else "sleeps"
        yield Candidate(
            cause="gil-held",
            culprits=culprit(actor),
            reason=f"{does} in a C call that keeps the GIL{f', at {where}' if where else ''}",
            evidence=(
                Item(
                    "stack",
                    actor.rank,
                    f"thread {thread.tid} {thread.name} owns the GIL in state {seen.state} "
                    f"({seen.wchan or does}); no other thread can run Python",
                ),
                still_item(actor),
                stack_item(actor),
            ),
            sink=Sink.INTERPRETER,
            liveness="computing" if runs else "never-wakes",
            phase=actor.phase,
            still_s=actor.motion.still_s,
            fixes=(
                Fix(
                    "Release the GIL around the call (ctypes.CDLL, not PyDLL), or run it in a "
                    "process of its own with a timeout."
                ),
            ),
            confirm=(f"py-spy dump --native --pid {actor.pid}  # the C function that holds it",),
        )


def _main_wants_gil(actor: Actor, owner: PythonThread) -> bool:
    """Whether the main thread asks for the GIL again and again, at one place: Python asks every 5
    ms, and a thread that runs Python gives it up then. Only one in C code does not.
    """
    motion = actor.motion
    if owner.tid == actor.pid or motion.moved or motion.seconds <= 0:
        return False
    return motion.wakes / motion.seconds >= _ASKS_PER_S


def _owned_always(scene: Scene, actor: Actor, tid: int) -> bool:
    """Whether every look found the GIL with this thread: a timer's has it for a moment."""
    stacks = [s for look in scene.evidence.stacks for s in look if s.pid == actor.pid]
    owners = [
        {t.tid for t in s.threads if t.owns_gil} for s in stacks if s.threads and not s.native
    ]
    return all(tid in one for one in owners)
