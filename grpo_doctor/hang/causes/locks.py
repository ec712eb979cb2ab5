"""Locks: files, the GIL, two threads in acquire, and a lock that a fork took along."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from grpo_doctor.hang.causes.candidate import MECHANISM, Candidate, Case
from grpo_doctor.hang.causes.wording import at, in_phase, named, stack_item, still_item
from grpo_doctor.hang.known_code import short
from grpo_doctor.hang.places import is_library, place_of
from grpo_doctor.hang.scene import Actor, Scene
from grpo_doctor.hang.verdict import Fix, Item
from grpo_doctor_probes.evidence import PythonThread

_RUNNING = "RD"
# Library functions whose innermost frame is a plain lock's acquire.
_ACQUIRES = ("acquire", "__enter__", "_acquireLock", "handle")
_IDLE = ("_worker", "_run_event_loop", "_monitor", "serve_forever", "_bootstrap")


def propose(case: Case) -> Iterator[Candidate]:
    """What holds a rank that wants a lock."""
    for actor in case.scene.by_rank.values():
        if not actor.held and actor.motion.kind in ("still", "polling", "unknown"):
            yield from _gil(case.scene, actor)
    for actor in case.suspects:
        if actor.held or actor.motion.progresses:
            continue
        yield from _file_lock(case.scene, actor)
        yield from _thread_lock(actor)


def _gil(scene: Scene, actor: Actor) -> Iterator[Candidate]:
    """A thread that has the GIL and does not run: a C call that did not release it."""
    for thread in actor.python_threads:
        seen = actor.thread(thread.tid)
        if not thread.owns_gil or seen is None or seen.state in _RUNNING:
            continue
        if actor.motion.cpu_share > 0.05 or not _owned_always(scene, actor, thread.tid):
            continue
        where = at(place_of(thread).user or thread.frames[0] if thread.frames else None)
        yield Candidate(
            cause="gil-held",
            culprits=(actor.rank,) if actor.rank is not None else (),
            reason=f"sleeps in a C call that keeps the GIL{f', at {where}' if where else ''}",
            evidence=(
                Item(
                    "stack",
                    actor.rank,
                    f"thread {thread.tid} {thread.name} owns the GIL in state {seen.state} "
                    f"({seen.wchan or 'sleeping'}); no other thread can run Python",
                ),
                still_item(actor),
                stack_item(actor),
            ),
            hard=True,
            precise=MECHANISM + 3,
            strength=0.95,
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


def _owned_always(scene: Scene, actor: Actor, tid: int) -> bool:
    """Whether every look found the GIL with this thread: a timer's has it for a moment."""
    stacks = [s for look in scene.evidence.stacks for s in look if s.pid == actor.pid]
    owners = [
        {t.tid for t in s.threads if t.owns_gil} for s in stacks if s.threads and not s.native
    ]
    return all(tid in one for one in owners)


def _file_lock(scene: Scene, actor: Actor) -> Iterator[Candidate]:
    hold = actor.hold
    if hold is None or hold.kind != "file-lock":
        return
    holders = [scene.by_pid[pid] for pid in hold.peers if pid in scene.by_pid]
    strangers = [pid for pid in hold.peers if pid not in scene.by_pid]
    who = ", ".join([named(one) for one in holders] + [f"pid {pid}" for pid in strangers])
    ranks = sorted({one.rank for one in holders if one.rank is not None and one.waits})
    # A holder that merely stands may be in a download, whose next bytes are late.
    never = all(one.held or one.waits for one in holders) and not strangers
    yield Candidate(
        cause="lock-held",
        culprits=tuple(ranks) or ((actor.rank,) if actor.rank is not None else ()),
        reason=(
            f"keeps the lock {hold.target} while it waits in {holders[0].place.operation}"
            if ranks
            else f"waits for the lock of {hold.target}{f', held by {who}' if who else ''},"
            f"{in_phase(actor)}"
        ).rstrip(","),
        evidence=(
            Item("fd", actor.rank, f"flock on {hold.target}; held by {who or 'nobody we can see'}"),
            still_item(actor),
            stack_item(actor),
        ),
        hard=bool(holders) and never,
        precise=MECHANISM + 1,
        strength=0.95,
        phase=actor.phase,
        still_s=actor.motion.still_s,
        fixes=(
            Fix(f"End the process that holds {hold.target}; if none does, delete the lock file."),
            Fix("Take the lock with a timeout, and on one rank only."),
        ),
        confirm=(f"lsof {hold.target}  # who holds the lock",),
    )


def _wants_lock(actor: Actor, thread: PythonThread) -> bool:
    """Whether a thread stands in the acquire of a plain lock: asleep in a futex, in code that is
    the user's own or a wrapper of acquire. Waits for events and queues stand in `threading.wait`.
    """
    if not thread.frames:
        return False
    seen = actor.thread(thread.tid)
    held = next((one for one in actor.blocked if one.tid == thread.tid), None)
    if held is not None and held.kind != "futex":
        return False
    asleep = held is not None or (seen is not None and seen.state == "S" and "futex" in seen.wchan)
    inner = thread.frames[0]
    named = short(inner.function) in _ACQUIRES and "multiprocessing" not in inner.file
    plain = not is_library(inner) or named
    return asleep and plain


def _thread_lock(actor: Actor) -> Iterator[Candidate]:
    threads = actor.python_threads
    if not threads or any(thread.owns_gil for thread in threads):
        return
    main, others = threads[0], threads[1:]
    if not _wants_lock(actor, main):
        return
    wanting = [thread for thread in others if _wants_lock(actor, thread)]
    items = (
        still_item(actor),
        *(
            Item(
                "stack",
                actor.rank,
                f"thread {t.tid} {t.name}: {at(place_of(t).user or t.frames[0])}",
            )
            for t in (main, *wanting)
        ),
    )
    where = at(place_of(main).user or main.frames[0])
    others_work = any(t.frames and t not in wanting and not _idle(t) for t in others)
    if wanting and not others_work:  # else one of these may have the lock, and give it back
        other = at(place_of(wanting[0]).user or wanting[0].frames[0])
        reason = f"has two threads that wait for each other's lock: {where} and {other}"
        fix = Fix("Take the two locks in one order everywhere, or use one lock.")
        found = _locked(actor, "thread-deadlock", reason, items)
        yield replace(found, hard=True, precise=MECHANISM + 2, strength=0.9, fixes=(fix,))
        return
    reason = f"waits for a lock that is never released, at {where}{_elsewhere(others)}"
    fix = Fix("Release the lock on every path (`with lock:`), and give acquire a timeout.")
    yield replace(_locked(actor, "lock-held", reason, items), strength=0.75, fixes=(fix,))


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
        culprits=(actor.rank,) if actor.rank is not None else (),
        reason=reason,
        evidence=items,
        hard=False,
        precise=MECHANISM,
        phase=actor.phase,
        still_s=actor.motion.still_s,
        confirm=(f"py-spy dump --pid {actor.pid}  # threads in acquire",),
    )


def waits_in_fork(actor: Actor) -> bool:
    """Whether a child stands in a lock's acquire with no other thread that could release it."""
    threads = actor.python_threads
    return len(threads) == 1 and _wants_lock(actor, threads[0])
