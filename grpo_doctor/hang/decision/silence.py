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
from grpo_doctor.hang.model.process.actor import Actor
from grpo_doctor.hang.model.scene import Scene
from grpo_doctor.hang.model.waiting import tasks, wakeups
from grpo_doctor.hang.model.waiting.chain import asks_strangers, family

# Who wants a lock, or an engine that has gone, tries again and again and never gets on.
_TRIED_IN_VAIN = frozenset({"lock-held", "rollout-engine-dead"})


def silence_s(scene: Scene, root: Candidate, culprits: Sequence[Actor]) -> float:
    """Of the process at the bottom of it, else of the rank that ran last; infinite where that does
    not matter.
    """
    if root.cause in _TRIED_IN_VAIN:
        return math.inf
    bottom = scene.by_pid.get(root.node.pid) if isinstance(root.node, ProcessNode) else None
    if bottom is not None and bottom.held:
        return math.inf
    free = [
        actor for actor in culprits if not (actor.held or actor.waits or tasks.wakes_by_ray(actor))
    ]
    own = min((quiet_s(actor, actor.carriers) for actor in free), default=math.inf)
    if bottom is None:
        return own
    working = _at_work_s(scene, bottom)
    if bottom.member.role != "server":
        return working
    # An event loop keeps connections open that it does not wait for.
    loops = any(actor.place.call == "asyncio" for actor in free)
    return own if loops else max(own, working)


def _at_work_s(scene: Scene, bottom: Actor) -> float:
    """Return the seconds since any thread ran that may serve this rank; for a server whose other
    threads only accept connections, its child processes count too.
    """
    of_ray = tasks.own_threads(scene, bottom)
    if of_ray:
        return quiet_s(bottom, of_ray)
    if any(wakeups.has_timer(actor) for actor in _lock_holders(scene, bottom)):
        return 0.0
    process_s, threads = quiet_s(bottom, None), wakeups.serving(bottom)
    if threads is None or process_s >= FLOOR_S:
        return process_s
    below = (bottom, *family(scene, scene.children(bottom.pid)))
    if any(map(wakeups.has_timer, below)):
        return process_s
    return min(quiet_s(actor, wakeups.serving(actor)) for actor in below)


def _lock_holders(scene: Scene, actor: Actor) -> list[Actor]:
    hold = actor.hold
    return peers_seen(scene, hold) if hold is not None and hold.kind == "file-lock" else []


def nobody_is_at_it(scene: Scene, actor: Actor) -> bool:
    """Whether an answer cannot be on its way: each process that could compute it is seen,
    is silent, and has set no timer.

    Those are the process at the other end and, as it may have forwarded the request, all other
    processes of the job that are no ranks. A process that waits for an answer from outside the job
    has forwarded the request to one that was not inspected.
    """
    hold = actor.hold
    ends = {scene.by_pid.get(pid) for pid in hold.peers} if hold is not None else set()
    if actor.motion.kind != "still" or not ends:
        return False
    if any(process is None or process.member.role == "rank" for process in ends):
        return False
    beside = [
        process for process in scene.actors if process.member.role not in ("rank", "launcher")
    ]
    if any(asks_strangers(scene, process) or process.motion.progresses for process in beside):
        return False
    if any(map(wakeups.has_timer, (actor, *beside))):
        return False
    return min(quiet_s(process, wakeups.serving(process)) for process in beside) >= FLOOR_S


def quiet_s(actor: Actor, threads: frozenset[int] | None) -> float:
    """Since any of these threads ran, None for all; infinite where the kernel hides it."""
    if actor.look is None:
        return math.inf
    ages = [
        max(actor.look.at_ns - thread.last_ran_ns, 0) / 1e9
        for thread in actor.look.threads
        if thread.last_ran_ns and (threads is None or thread.tid in threads)
    ]
    return min(ages, default=math.inf)
