"""Whom a process waits for in the end: through pipes, sockets, locks and children of the job, or
outside of it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from grpo_doctor.hang.model.nodes import ProcessNode
from grpo_doctor.hang.model.scene import Actor, Scene
from grpo_doctor.hang.model.waiting.graph import Graph

# An engine or a task may be what a thread waits for, but which thread of a process asks it is not
# always seen: its own causes say so, and a judge's socket must not be taken for its wait.
_THROUGH = ("pipe", "socket", "child", "lock")
_AT_REST = ("still", "polling", "unknown")
ASKS = ("socket-receive", "socket-connect", "socket-send")


def rests(actor: Actor) -> bool:
    """Whether a worker waits for its next task."""
    return actor.place.call in ("queue", "pool") and actor.motion.kind in _AT_REST


def most_telling(actors: Iterable[Actor]) -> Actor | None:
    """Of several that may be meant: one that works, one that cannot, one that is in a task.

    A rank that waits for any of several waits no longer than for the one that works.
    """
    order = sorted(
        actors,
        key=lambda actor: (
            not actor.motion.progresses,
            -actor.motion.cpu_share,
            not actor.held,
            rests(actor),
            actor.pid,
        ),
    )
    return order[0] if order else None


def family(scene: Scene, children: Sequence[Actor]) -> list[Actor]:
    """These processes and all that they started."""
    members = {actor.pid: actor for actor in children}
    todo = list(children)
    while todo:
        below = [actor for actor in scene.children(todo.pop().pid) if actor.pid not in members]
        members |= {actor.pid: actor for actor in below}
        todo += below
    return list(members.values())


def has_succeeded(actor: Actor) -> bool:
    """Return whether it ended in order and its parent has not asked yet: none waits for it."""
    return actor.look is not None and actor.look.state == "Z" and actor.look.exit_code == 0


def _behind_manager(scene: Scene, below: Sequence[Actor], visited: set[int]) -> list[Actor]:
    """Who writes to a `multiprocessing.Manager` that is waited for: other children of its parent.

    Its server has no work of its own.
    """
    managers = [actor for actor in below if _serves_objects(actor) and not actor.held]
    siblings = [
        actor
        for manager in managers
        for actor in scene.children(manager.member.parent)
        if actor not in managers and actor.pid not in visited and not rests(actor)
    ]
    return [actor for actor in siblings if actor.member.role not in ("rank", "launcher")]


def _serves_objects(actor: Actor) -> bool:
    return any(
        frame.file.endswith("/managers.py") and frame.function.endswith("serve_forever")
        for frame in actor.place.frames
    )


def end_of(scene: Scene, graph: Graph, actor: Actor) -> Actor | None:
    """The helper process at the end of its chain of waits; None where it waits for none.

    Ranks are left out: who waits for whom among them is the graph's own subject.
    """
    visited = {actor.pid}
    end: Actor | None = None
    current = actor
    while True:
        links = [link for link in graph.out(current.node) if link.kind in _THROUGH]
        ends = (node for link in links for node in link.targets)
        pids = {node.pid for node in ends if isinstance(node, ProcessNode)}
        below = [scene.by_pid[pid] for pid in pids - visited if pid in scene.by_pid]
        below = [process for process in below if process.member.role not in ("rank", "launcher")]
        chosen = most_telling(_behind_manager(scene, below, visited) or below)
        if chosen is None:
            return end
        visited.add(chosen.pid)
        end = current = chosen
        if chosen.held or chosen.motion.progresses or rests(chosen):
            return end


def asks_strangers(scene: Scene, actor: Actor) -> bool:
    """Whether the other end of one of its connections is no process of the job: what it was asked
    for may be worked out there.
    """
    asks = [row for row in actor.blocked if row.kind in ASKS]
    return any(not row.peers or not scene.by_pid.keys() >= set(row.peers) for row in asks)
