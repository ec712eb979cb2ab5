"""How long nothing that could end a wait has run: this separates a hang from a slow answer.

That the others have waited long says nothing of a rank that asks, sleeps and asks again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from grpo_doctor.hang.causes import Candidate
from grpo_doctor.hang.causes.description import peers_seen
from grpo_doctor.hang.limits import FLOOR_S
from grpo_doctor.hang.model.nodes import ProcessNode
from grpo_doctor.hang.model.process.proc import Process
from grpo_doctor.hang.model.view import JobView
from grpo_doctor.hang.model.waiting import tasks, wakeups
from grpo_doctor.hang.model.waiting.chain import asks_strangers, family

# Who wants a lock, or an engine that has gone, tries again and again and never gets on.
_TRIED_IN_VAIN = frozenset({"lock-held", "rollout-engine-dead"})


def silence_s(view: JobView, root: Candidate, culprits: Sequence[Process]) -> float:
    """Of the process at the bottom of it, else of the rank that ran last; infinite where that does
    not matter.
    """
    if root.cause in _TRIED_IN_VAIN:
        return math.inf
    bottom = view.by_pid.get(root.node.pid) if isinstance(root.node, ProcessNode) else None
    if bottom is not None and bottom.cannot_run:
        return math.inf
    free = [
        proc for proc in culprits if not (proc.cannot_run or proc.waits or tasks.wakes_by_ray(proc))
    ]
    own = min((quiet_s(proc, proc.waker_tids) for proc in free), default=math.inf)
    if bottom is None:
        return own
    working = _at_work_s(view, bottom)
    if bottom.member.role != "server":
        return working
    # An event loop keeps connections open that it does not wait for.
    loops = any(proc.place.call == "asyncio" for proc in free)
    return own if loops else max(own, working)


def _at_work_s(view: JobView, bottom: Process) -> float:
    """Return the seconds since any thread ran that may serve this rank; for a server whose other
    threads only accept connections, its child processes count too.
    """
    of_ray = tasks.own_threads(view, bottom)
    if of_ray:
        return quiet_s(bottom, of_ray)
    if any(wakeups.has_timer(proc) for proc in _lock_holders(view, bottom)):
        return 0.0
    process_s, threads = quiet_s(bottom, None), wakeups.serving(bottom)
    if threads is None or process_s >= FLOOR_S:
        return process_s
    below = (bottom, *family(view, view.children(bottom.pid)))
    if any(map(wakeups.has_timer, below)):
        return process_s
    return min(quiet_s(proc, wakeups.serving(proc)) for proc in below)


def _lock_holders(view: JobView, proc: Process) -> list[Process]:
    hold = proc.hold
    return peers_seen(view, hold) if hold is not None and hold.kind == "file-lock" else []


def nobody_is_at_it(view: JobView, proc: Process) -> bool:
    """Whether an answer cannot be on its way: each process that could compute it is seen,
    is silent, and has set no timer.

    Those are the process at the other end and, as it may have forwarded the request, all other
    processes of the job that are no ranks. A process that waits for an answer from outside the job
    has forwarded the request to one that was not inspected.
    """
    hold = proc.hold
    ends = {view.by_pid.get(pid) for pid in hold.peers} if hold is not None else set()
    if proc.activity.kind != "still" or not ends:
        return False
    if any(process is None or process.member.role == "rank" for process in ends):
        return False
    beside = [process for process in view.procs if process.member.role not in ("rank", "launcher")]
    if any(asks_strangers(view, process) or process.activity.progresses for process in beside):
        return False
    if any(map(wakeups.has_timer, (proc, *beside))):
        return False
    return min(quiet_s(process, wakeups.serving(process)) for process in beside) >= FLOOR_S


def quiet_s(proc: Process, threads: frozenset[int] | None) -> float:
    """Since any of these threads ran, None for all; infinite where the kernel hides it."""
    if proc.look is None:
        return math.inf
    ages = [
        max(proc.look.at_ns - thread.last_ran_ns, 0) / 1e9
        for thread in proc.look.threads
        if thread.last_ran_ns and (threads is None or thread.tid in threads)
    ]
    return min(ages, default=math.inf)
