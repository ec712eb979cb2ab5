"""The other Python threads of a process: a pool's workers, and the one that the main thread needs.

py-spy shows no link between a future and the thread that works it out, so the call that the main
thread stands in must tell which threads can be meant.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from grpo_doctor.hang.model.process.known_code import short
from grpo_doctor.hang.model.process.places import Place, place_of
from grpo_doctor.hang.model.process.progress import is_heartbeat
from grpo_doctor_probes.evidence import Blocked, PythonThread

_POOL_CODE = re.compile(r"concurrent/futures/thread|multiprocessing/pool|/queue\.py|/threading\.py")
_LOOPS = ("_worker", "worker")  # of an executor's and of a pool's thread
_AWAITS_TASK = (*_LOOPS, "get", "wait")
# Rows of a helper thread that it has not by nature: event loops and idle workers have others.
_TELLING = (
    "file",
    "fifo-open",
    "pipe-write",
    "socket-receive",
    "socket-send",
    "socket-connect",
    "file-lock",
    "child",
)
_JOINS = ("join", "_wait_for_tstate_lock", "_shutdown")


def works_for_pool(thread: PythonThread) -> bool:
    """Whether it is a pool's thread in the midst of a task."""
    frames = thread.frames
    if not frames:
        return False
    loops = any(_POOL_CODE.search(one.file) and short(one.function) in _LOOPS for one in frames)
    idle = _POOL_CODE.search(frames[0].file) and short(frames[0].function) in _AWAITS_TASK
    return loops and not idle


def awaited(
    place: Place, others: Sequence[PythonThread], rows: Sequence[Blocked] = ()
) -> PythonThread | None:
    """The thread that a main thread at `place` waits for, if it can be told.

    Of a pool any thread with a task, one that is blocked before others. A `join` means the only
    thread that runs the user's code; so may a queue, an event or a lock, but only one whose code
    says which part of a step it is, or one that is blocked: a logger's thread is in user code as
    well.
    """
    blocked = {row.tid for row in rows if row.kind in _TELLING}
    at_work = [thread for thread in others if works_for_pool(thread)]
    if place.call in ("pool", "asyncio"):
        return min(at_work, key=lambda one: (one.tid not in blocked, one.tid), default=None)
    if place.call not in ("lock", "queue"):
        return None
    stuck = [thread for thread in others if thread.tid in blocked]
    if len(stuck) == 1:
        return stuck[0]
    own = [t for t in others if place_of(t).user is not None and not is_heartbeat(t.name)]
    if place.operation not in _JOINS:
        own = [thread for thread in own if place_of(thread).phase is not None]
    return own[0] if len(own) == 1 else None
