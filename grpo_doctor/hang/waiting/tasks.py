"""Jobs whose ranks are actors of Ray: who works on a task, and who waits for whose answer. Pure.

An actor without a task waits for its next call, so for the driver, and that for whoever has one.
"""

from __future__ import annotations

from grpo_doctor.hang.process import ray_code
from grpo_doctor.hang.scene import Actor, Scene


def is_idle(actor: Actor) -> bool:
    """Whether it is able to work and has no task."""
    return not actor.held and not task_of(actor) and ray_code.in_loop(actor.place.frames)


def task_of(actor: Actor) -> str:
    """The method or function that it is called for, `Worker.update`; empty for all others."""
    return ray_code.task_of(actor.member, actor.place.frames)


def asks(actor: Actor) -> bool:
    """Whether it waits for the answer of somebody's task."""
    return not actor.held and ray_code.asks(actor.place.frames)


def wakes_by_ray(actor: Actor) -> bool:
    """Whether it wakes every second by Ray's own clock, which tells nothing of its progress."""
    return is_idle(actor) or asks(actor)


def own_threads(scene: Scene, actor: Actor) -> frozenset[int]:
    """Of a process of Ray's the threads that run Python; empty for all others. Ray's own threads
    wake many times a second whether or not there is work.
    """
    if not (ray_code.is_actor(actor.member) or actor in drivers(scene)):
        return frozenset()
    return frozenset(one.tid for one in actor.python_threads if one.frames)


def idle_ranks(scene: Scene) -> tuple[Actor, ...]:
    """Ranks that nobody can be waiting for but the driver: not while others need them."""
    ranks = tuple(scene.by_rank.values())
    if any(one.waits for one in ranks):
        return ()
    return tuple(one for one in ranks if is_idle(one))


def drivers(scene: Scene) -> tuple[Actor, ...]:
    """The programs that call the actors, of this host."""
    return tuple(a for a in scene.actors if ray_code.drives(a.member, a.place.frames))


def at_work(scene: Scene) -> tuple[Actor, ...]:
    """Whoever has a task and asks nobody, ranks left out; without any, who asks: the driver last.

    A stopped actor keeps its title, so its task; of one that has died Ray tells the driver.
    """
    ranks = {one.pid for one in scene.by_rank.values()}
    busy = [one for one in scene.actors if one.pid not in ranks and task_of(one)]
    own = [one for one in drivers(scene) if one not in busy]
    answering = tuple(one for one in [*busy, *own] if not asks(one))
    return answering or (*busy, *own)[-1:]


def pending(scene: Scene) -> tuple[Actor, ...]:
    """Who may give the answers that are waited for: ranks that work on a task included."""
    ranks = [one for one in scene.by_rank.values() if not is_idle(one) and not one.waits]
    return tuple(one for one in [*ranks, *at_work(scene)] if not asks(one))


def quiet_s(scene: Scene) -> float | None:
    """Since a rank began its last collective; None where no recording tells."""
    ages = [
        (one.taken_ns - one.last_enqueued_ns) / 1e9
        for one in scene.matching.rhythms
        if one.taken_ns and one.last_enqueued_ns is not None
    ]
    return min(ages, default=None)
