"""Pools that a rank waits for: of threads of its own, or of processes."""

from __future__ import annotations

import re

from grpo_doctor.hang.known_code import short
from grpo_doctor.hang.scene import Actor

_POOL_THREAD = re.compile(
    r"concurrent/futures/thread|multiprocessing/pool|/queue\.py|/threading\.py"
)
_LOOPS = ("_worker", "worker")  # of an executor's and of a pool's thread
_AWAITS = (*_LOOPS, "get", "wait")  # its next task


def has_tasks(actor: Actor) -> bool:
    """Whether threads of its own work for its pool, so that it waits for no process."""
    return any(
        any(_POOL_THREAD.search(frame.file) and short(frame.function) in _LOOPS for frame in frames)
        and (not _POOL_THREAD.search(frames[0].file) or short(frames[0].function) not in _AWAITS)
        for frames in (thread.frames for thread in actor.python_threads[1:])
        if frames
    )


def in_process_pool(actor: Actor) -> bool:
    """An executor of `concurrent.futures` says itself that a worker died, and raises."""
    return any("multiprocessing/pool" in frame.file for frame in actor.place.frames)
