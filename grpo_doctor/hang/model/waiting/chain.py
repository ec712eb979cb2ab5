"""Whom a process waits for in the end: through pipes, sockets, locks and children of the job, or
outside of it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from grpo_doctor.hang.model.nodes import ProcessNode
from grpo_doctor.hang.model.scene import Actor, Scene
from grpo_doctor.hang.model.waiting.graph import Graph

_THROUGH = ("pipe", "socket", "child", "lock")
_AT_REST = ("still", "polling", "unknown")


def rests(actor: Actor) -> bool:
    """Whether a worker waits for its next task."""
    return actor.place.call in ("queue", "pool") and actor.motion.kind in _AT_REST


def most_telling(actors: Iterable[Actor]) -> Actor | None:
    """Of several that may be meant: one that works, one that cannot, one that is in a task.

    A rank that waits for any of several waits no longer than for the one that works.
    """
    order = sorted(
        actors,
        key=lambda one: (
            not one.motion.progresses,
            -one.motion.cpu_share,
            not one.held,
            rests(one),
            one.pid,
        ),
    )
    return order[0] if order else None


def family(scene: Scene, children: Sequence[Actor]) -> list[Actor]:
    """These processes and all that they started."""
    found = {one.pid: one for one in children}
    todo = list(children)
    while todo:
        below = [one for one in scene.children(todo.pop().pid) if one.pid not in found]
        found |= {one.pid: one for one in below}
        todo += below
    return list(found.values())


def has_succeeded(actor: Actor) -> bool:
    """Whether it has ended in order and its parent has not asked yet: nobody waits for that."""
    return actor.look is not None and actor.look.state == "Z" and actor.look.exit_code == 0


def _behind_manager(scene: Scene, below: Sequence[Actor], seen: set[int]) -> list[Actor]:
    """Who writes to a `multiprocessing.Manager` that is waited for: other children of its parent.

    Its server has no work of its own.
    """
    managers = [one for one in below if _serves_objects(one) and not one.held]
    others = [
        one
        for manager in managers
        for one in scene.children(manager.member.parent)
        if one not in managers and one.pid not in seen and not rests(one)
    ]
    return [one for one in others if one.member.role not in ("rank", "launcher")]


def _serves_objects(actor: Actor) -> bool:
    return any(
        one.file.endswith("/managers.py") and one.function.endswith("serve_forever")
        for one in actor.place.frames
    )


def end_of(scene: Scene, graph: Graph, actor: Actor) -> Actor | None:
    """The helper process at the end of its chain of waits; None where it waits for none.

    Ranks are left out: who waits for whom among them is the graph's own subject.
    """
    seen = {actor.pid}
    found: Actor | None = None
    here = actor
    while True:
        links = [link for link in graph.out(here.node) if link.needs == "any"]
        ends = (end for link in links for end in link.targets)
        pids = {end.pid for end in ends if isinstance(end, ProcessNode)}
        below = [scene.by_pid[pid] for pid in pids - seen if pid in scene.by_pid]
        below = [one for one in below if one.member.role not in ("rank", "launcher")]
        chosen = most_telling(_behind_manager(scene, below, seen) or below)
        if chosen is None:
            return found
        seen.add(chosen.pid)
        found = here = chosen
        if chosen.held or chosen.motion.progresses or rests(chosen):
            return found


ASKS = ("socket-receive", "socket-connect", "socket-send")


def asks_strangers(scene: Scene, actor: Actor) -> bool:
    """Whether the other end of one of its connections is no process of the job: what it was asked
    for may be worked out there.
    """
    asks = [row for row in actor.blocked if row.kind in ASKS]
    return any(not row.peers or not scene.by_pid.keys() >= set(row.peers) for row in asks)
