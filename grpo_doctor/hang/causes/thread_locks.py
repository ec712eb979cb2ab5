"""Locks of threads: Python's global one, two in acquire, and one that a fork took along."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from grpo_doctor.hang.causes.candidate import Candidate, Case, Sink
from grpo_doctor.hang.causes.description import (
    at_frame,
    frame_text,
    others_wait,
    standstill,
    still_item,
)
from grpo_doctor.hang.model.process.call_stack import is_library, place_of
from grpo_doctor.hang.model.process.known_code import short
from grpo_doctor.hang.model.process.progress import has_time_limit
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.verdict import Fix, Item
from grpo_doctor_probes.evidence import PythonThread, Thread

# Library functions whose innermost frame is a plain lock's acquire.
_ACQUIRES = ("acquire", "__enter__", "_acquireLock", "handle")
_IDLE = ("_worker", "_run_event_loop", "_monitor", "serve_forever", "_bootstrap")
_RUNNING = "RD"
_AWAKE_SHARE = 0.05  # of a core
_ASKS_PER_S = 50  # 200 by default, fewer on a crowded machine; ordinary waits wake less often


def propose(case: Case) -> Iterator[Candidate]:
    """What holds a rank that wants the lock of a thread, or whose threads want the global one."""
    for proc in case.view.by_rank.values():
        if not proc.cannot_run and proc.activity.kind != "working":
            yield from _global_lock(case.view, proc)
    for proc in case.idle:
        candidate = _thread_lock(case.view, proc)
        if candidate is not None:
            yield candidate


def _global_lock(view: JobView, proc: Process) -> Iterator[Candidate]:
    """A thread that has the GIL in every look and does not let go: a C call that keeps it."""
    for thread in proc.python_threads:
        task = proc.thread(thread.tid)
        if not thread.owns_gil or task is None or not _owned_always(view, proc, thread.tid):
            continue
        runs = task.state in _RUNNING
        keeps = _main_wants_gil(proc, thread) if runs else proc.activity.cpu_share <= _AWAKE_SHARE
        if keeps:
            yield _gil_held(proc, thread, task, runs=runs).of(proc)


def _gil_held(proc: Process, thread: PythonThread, task: Thread, *, runs: bool) -> Candidate:
    does = "computes" if runs else "sleeps"
    where = f", at {_line(thread)}" if thread.frames else ""
    owner = (
        f"thread {thread.tid} {thread.name} owns the GIL in state {task.state} "
        f"({task.wchan or does}); no other thread can run Python"
    )
    return Candidate(
        cause="gil-held",
        reason=f"{does} in a C call that keeps the GIL{where}",
        evidence=(Item("stack", proc.rank, owner), *standstill(proc)),
        sink=Sink.HOLDER,
        liveness="computing" if runs else "never-wakes",
        fixes=(
            Fix(
                "Release the GIL around the call (ctypes.CDLL, not PyDLL), or run it in a "
                "separate process with a timeout."
            ),
        ),
        confirm=(f"py-spy dump --native --pid {proc.pid}  # the C function that holds it",),
    )


def _main_wants_gil(proc: Process, owner: PythonThread) -> bool:
    """Whether the main thread asks for the GIL again and again, at one place: Python asks every 5
    ms, and a thread that runs Python gives it up then. Only one in C code does not.
    """
    activity = proc.activity
    if owner.tid == proc.pid or activity.moved or activity.seconds <= 0:
        return False
    return activity.wakes / activity.seconds >= _ASKS_PER_S


def _owned_always(view: JobView, proc: Process, tid: int) -> bool:
    """Whether every look found the GIL with this thread: a timer's has it for a moment."""
    stacks = [s for look in view.evidence.stacks for s in look if s.pid == proc.pid]
    owners = [
        {t.tid for t in s.threads if t.owns_gil} for s in stacks if s.threads and not s.native
    ]
    return all(tid in owned for owned in owners)


def _wants_lock(proc: Process, thread: PythonThread) -> bool:
    """Return whether a thread is in the acquire of a plain lock: asleep in a futex without a
    limit, in the user's own code or a wrapper of acquire. Waits for events and queues are in
    `threading.wait`.
    """
    if not thread.frames:
        return False
    task = proc.thread(thread.tid)
    hold = next((call for call in proc.blocked if call.tid == thread.tid), None)
    if hold is not None and hold.kind != "futex":
        return False
    if task is not None and has_time_limit(task):
        return False
    asleep = hold is not None or (task is not None and task.state == "S" and "futex" in task.wchan)
    inner = thread.frames[0]
    is_acquire = short(inner.function) in _ACQUIRES and "multiprocessing" not in inner.file
    plain = not is_library(inner) or is_acquire
    return asleep and plain


def _thread_lock(view: JobView, proc: Process) -> Candidate | None:
    threads = proc.python_threads
    if not threads or any(thread.owns_gil for thread in threads):
        return None
    main, beside = threads[0], threads[1:]
    wanting = [thread for thread in beside if _wants_lock(proc, thread)]
    busy = [thread for thread in beside if thread.frames and not _idle(thread)]
    # One that is at work may have the lock, and give it back.
    deadlocked = bool(wanting) and all(thread in wanting for thread in busy)
    if not _wants_lock(proc, main):
        joins = deadlocked and _waits_for_thread(proc)
        return _waits_for_waiting(proc, main, wanting) if joins else None
    if deadlocked:
        return _two_want(proc, main, wanting)
    if len(busy) == 1 and place_of(busy[0]).communicates and others_wait(view, proc.rank):
        return _lock_in_collective(proc, main, busy[0])
    return _never_released(proc, main, wanting, busy)


def _waits_for_thread(proc: Process) -> bool:
    """Whether its main thread joins another one, or waits without a limit for one to wake it."""
    timed = proc.main is not None and has_time_limit(proc.main)
    return proc.place.call == "lock" and not timed


def _two_want(proc: Process, main: PythonThread, wanting: Sequence[PythonThread]) -> Candidate:
    lines = f"{_line(main)} and {_line(wanting[0])}"
    reason = f"has two threads that wait for each other's lock: {lines}"
    fix = Fix("Take the two locks in one order everywhere, or use one lock.")
    deadlock = _locked(proc, "thread-deadlock", reason, (main, *wanting))
    return replace(deadlock, liveness="never-wakes", sink=Sink.HOLDER, fixes=(fix,))


def _waits_for_waiting(
    proc: Process, main: PythonThread, wanting: Sequence[PythonThread]
) -> Candidate:
    """A thread that waits gives back no lock that it has. No proof: what wakes it may be C++."""
    waiter = wanting[0]
    reason = (
        f"waits at {_line(main)} for thread {waiter.name or waiter.tid}, which wants a lock at "
        f"{_line(waiter)} that no other thread can release"
    )
    fix = Fix("Release the lock before you wait for, or join, a thread that takes it.")
    deadlock = _locked(proc, "thread-deadlock", reason, (main, *wanting))
    return replace(deadlock, sink=Sink.HOLDER, fixes=(fix,))


def _lock_in_collective(proc: Process, main: PythonThread, holder: PythonThread) -> Candidate:
    """Its thread waits for the others, who wait for its main one: who waits for a lock waits for
    whatever the thread that has it waits for.
    """
    reason = (
        f"waits for a lock at {_line(main)} while thread {holder.name or holder.tid} is in "
        f"{place_of(holder).operation} at {_line(holder)}, which the others never reach"
    )
    fix = Fix(
        "Call collectives from one thread, and not while holding a lock that the main thread takes."
    )
    ring = _locked(proc, "group-order-cycle", reason, (main, holder))
    return replace(ring, sink=Sink.HOLDER, fixes=(fix,))


def _never_released(
    proc: Process, main: PythonThread, wanting: Sequence[PythonThread], busy: Sequence[PythonThread]
) -> Candidate:
    """The first of `busy` is what probably has the lock."""
    user = place_of(busy[0]).user if busy else None
    holder = f", while thread {busy[0].name or busy[0].tid} is{at_frame(user)}" if user else ""
    reason = f"waits for a lock that is never released, at {_line(main)}{holder}"
    fix = Fix("Release the lock on every path (`with lock:`), and give acquire a timeout.")
    return replace(_locked(proc, "lock-held", reason, (main, *wanting)), fixes=(fix,))


def _line(thread: PythonThread) -> str:
    return frame_text(place_of(thread).user or thread.frames[0])


def _idle(thread: PythonThread) -> bool:
    return any(short(frame.function) in _IDLE for frame in thread.frames[-3:]) and not any(
        not is_library(frame) for frame in thread.frames
    )


def _locked(proc: Process, cause: str, reason: str, threads: Sequence[PythonThread]) -> Candidate:
    """What these threads do, the main one first, is why nothing moves."""
    lines = (f"thread {thread.tid} {thread.name}: {_line(thread)}" for thread in threads)
    return Candidate(
        cause=cause,
        reason=reason,
        evidence=(still_item(proc), *(Item("stack", proc.rank, line) for line in lines)),
        sink=Sink.HELPER,
        confirm=(f"py-spy dump --pid {proc.pid}  # threads in acquire",),
    ).of(proc)


def waits_in_fork(proc: Process) -> bool:
    """Return whether a child is in a lock's acquire and has no other thread to release it."""
    threads = proc.python_threads
    return len(threads) == 1 and _wants_lock(proc, threads[0])
