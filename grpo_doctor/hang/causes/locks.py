"""Locks of threads: two in acquire, and a lock that a fork took along."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from grpo_doctor.hang.causes.candidate import Candidate, Case, Sink
from grpo_doctor.hang.causes.wording import at, culprit, still_item
from grpo_doctor.hang.model.process.call_stack import is_library, place_of
from grpo_doctor.hang.model.process.known_code import short
from grpo_doctor.hang.model.process.progress import has_time_limit
from grpo_doctor.hang.model.scene import Actor, Scene
from grpo_doctor.hang.verdict import Fix, Item
from grpo_doctor_probes.evidence import PythonThread

# Library functions whose innermost frame is a plain lock's acquire.
_ACQUIRES = ("acquire", "__enter__", "_acquireLock", "handle")
_IDLE = ("_worker", "_run_event_loop", "_monitor", "serve_forever", "_bootstrap")


def propose(case: Case) -> Iterator[Candidate]:
    """What holds a rank that wants the lock of a thread."""
    for actor in case.hosts:
        if actor.held or actor.motion.progresses:
            continue
        yield from _thread_lock(case.scene, actor)


def _wants_lock(actor: Actor, thread: PythonThread) -> bool:
    """Whether a thread stands in the acquire of a plain lock: asleep in a futex without a limit, in
    code that is the user's own or a wrapper of acquire. Waits for events and queues stand in
    `threading.wait`.
    """
    if not thread.frames:
        return False
    seen = actor.thread(thread.tid)
    held = next((one for one in actor.blocked if one.tid == thread.tid), None)
    if held is not None and held.kind != "futex":
        return False
    if seen is not None and has_time_limit(seen):
        return False
    asleep = held is not None or (seen is not None and seen.state == "S" and "futex" in seen.wchan)
    inner = thread.frames[0]
    named = short(inner.function) in _ACQUIRES and "multiprocessing" not in inner.file
    plain = not is_library(inner) or named
    return asleep and plain


def _thread_lock(scene: Scene, actor: Actor) -> Iterator[Candidate]:
    threads = actor.python_threads
    if not threads or any(thread.owns_gil for thread in threads):
        return
    main, others = threads[0], threads[1:]
    wanting = [thread for thread in others if _wants_lock(actor, thread)]
    # One that is at work may have the lock, and give it back.
    others_work = any(t.frames and t not in wanting and not _idle(t) for t in others)
    if not _wants_lock(actor, main):
        if wanting and not others_work and _waits_for_thread(actor):
            yield _waits_for_waiting(actor, main, wanting)
        return
    items = _threads_items(actor, (main, *wanting))
    where = _line(main)
    if wanting and not others_work:
        reason = f"has two threads that wait for each other's lock: {where} and {_line(wanting[0])}"
        fix = Fix("Take the two locks in one order everywhere, or use one lock.")
        found = _locked(actor, "thread-deadlock", reason, items)
        yield replace(found, liveness="never-wakes", sink=Sink.KERNEL, fixes=(fix,))
        return
    busy = [thread for thread in others if thread.frames and not _idle(thread)]
    if len(busy) == 1 and place_of(busy[0]).communicates and _others_wait(scene, actor):
        yield _lock_in_collective(actor, main, busy[0])
    reason = f"waits for a lock that is never released, at {where}{_elsewhere(others)}"
    fix = Fix("Release the lock on every path (`with lock:`), and give acquire a timeout.")
    yield replace(_locked(actor, "lock-held", reason, items), fixes=(fix,))


def _others_wait(scene: Scene, actor: Actor) -> bool:
    others = [one for one in scene.by_rank.values() if one is not actor]
    return bool(others) and all(one.waits for one in others)


def _lock_in_collective(actor: Actor, main: PythonThread, holder: PythonThread) -> Candidate:
    """Its thread waits for the others, who wait for its main one: who waits for a lock waits for
    whatever the thread that has it waits for.
    """
    reason = (
        f"waits for a lock at {_line(main)} while thread {holder.name or holder.tid} is in "
        f"{place_of(holder).operation} at {_line(holder)}, to which the others do not come"
    )
    fix = Fix("Call collectives from one thread, and without a lock that the main thread takes.")
    items = _threads_items(actor, (main, holder))
    found = _locked(actor, "group-order-cycle", reason, items)
    return replace(found, sink=Sink.KERNEL, fixes=(fix,))


def _waits_for_thread(actor: Actor) -> bool:
    """Whether its main thread joins another one, or waits without a limit for one to wake it."""
    timed = actor.main is not None and has_time_limit(actor.main)
    return actor.place.call == "lock" and not timed


def _waits_for_waiting(
    actor: Actor, main: PythonThread, wanting: Sequence[PythonThread]
) -> Candidate:
    """A thread that waits gives back no lock that it has. No proof: what wakes it may be C++."""
    other = wanting[0]
    reason = (
        f"waits at {_line(main)} for thread {other.name or other.tid}, which wants a lock at "
        f"{_line(other)} that no other thread can give back"
    )
    fix = Fix("Give the lock back before you wait for a thread that takes it, or join.")
    items = _threads_items(actor, (main, *wanting))
    found = _locked(actor, "thread-deadlock", reason, items)
    return replace(found, sink=Sink.HOLDER, fixes=(fix,))


def _line(thread: PythonThread) -> str:
    return at(place_of(thread).user or thread.frames[0])


def _threads_items(actor: Actor, threads: Sequence[PythonThread]) -> tuple[Item, ...]:
    lines = (f"thread {one.tid} {one.name}: {_line(one)}" for one in threads)
    return (still_item(actor), *(Item("stack", actor.rank, line) for line in lines))


def _elsewhere(others: Sequence[PythonThread]) -> str:
    """What the thread does that probably has the lock."""
    holder = next((one for one in others if one.frames and not _idle(one)), None)
    user = place_of(holder).user if holder is not None else None
    if holder is None or user is None:
        return ""
    return f", while thread {holder.name or holder.tid} is at {at(user)}"


def _idle(thread: PythonThread) -> bool:
    return any(short(frame.function) in _IDLE for frame in thread.frames[-3:]) and not any(
        not is_library(frame) for frame in thread.frames
    )


def _locked(actor: Actor, cause: str, reason: str, items: tuple[Item, ...]) -> Candidate:
    return Candidate(
        cause=cause,
        culprits=culprit(actor),
        reason=reason,
        evidence=items,
        sink=Sink.HELPER,
        liveness="unseen",
        phase=actor.phase,
        still_s=actor.motion.still_s,
        confirm=(f"py-spy dump --pid {actor.pid}  # threads in acquire",),
    )


def waits_in_fork(actor: Actor) -> bool:
    """Whether a child stands in a lock's acquire with no other thread that could release it."""
    threads = actor.python_threads
    return len(threads) == 1 and _wants_lock(actor, threads[0])
