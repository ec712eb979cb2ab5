"""Whom a process waits for in the end: through pipes, sockets, locks and children of the job, or
outside of it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from grpo_doctor.hang.model.nodes import ProcessNode
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.model.waiting.graph import Graph

# An engine or a task may be what a thread waits for, but which thread of a process asks it is not
# always seen: its own causes say so, and a judge's socket must not be taken for its wait.
_THROUGH = ("pipe", "socket", "child", "lock")
_AT_REST = ("still", "polling", "unknown")
ASKS = ("socket-receive", "socket-connect", "socket-send")


def rests(proc: Process) -> bool:
    """Whether a worker waits for its next task."""
    return proc.place.call in ("queue", "pool") and proc.activity.kind in _AT_REST


def most_telling(procs: Iterable[Process]) -> Process | None:
    """Of several that may be meant: one that works, one that cannot, one that is in a task.

    A rank that waits for any of several waits no longer than for the one that works.
    """
    order = sorted(
        procs,
        key=lambda proc: (
            not proc.activity.progresses,
            -proc.activity.cpu_share,
            not proc.cannot_run,
            rests(proc),
            proc.pid,
        ),
    )
    return order[0] if order else None


def family(view: JobView, children: Sequence[Process]) -> list[Process]:
    """These processes and all that they started."""
    members = {proc.pid: proc for proc in children}
    todo = list(children)
    while todo:
        below = [proc for proc in view.children(todo.pop().pid) if proc.pid not in members]
        members |= {proc.pid: proc for proc in below}
        todo += below
    return list(members.values())


def has_succeeded(proc: Process) -> bool:
    """Return whether it ended in order and its parent has not asked yet: none waits for it."""
    return proc.look is not None and proc.look.state == "Z" and proc.look.exit_code == 0


def _behind_manager(view: JobView, below: Sequence[Process], visited: set[int]) -> list[Process]:
    """Who writes to a `multiprocessing.Manager` that is waited for: other children of its parent.

    Its server has no work of its own.
    """
    managers = [proc for proc in below if _serves_objects(proc) and not proc.cannot_run]
    siblings = [
        proc
        for manager in managers
        for proc in view.children(manager.member.parent)
        if proc not in managers and proc.pid not in visited and not rests(proc)
    ]
    return [proc for proc in siblings if proc.member.role not in ("rank", "launcher")]


def _serves_objects(proc: Process) -> bool:
    return any(
        frame.file.endswith("/managers.py") and frame.function.endswith("serve_forever")
        for frame in proc.place.frames
    )


def end_of(view: JobView, graph: Graph, proc: Process) -> Process | None:
    """The helper process at the end of its chain of waits; None where it waits for none.

    Ranks are left out: who waits for whom among them is the graph's own subject.
    """
    visited = {proc.pid}
    end: Process | None = None
    current = proc
    while True:
        links = [link for link in graph.out(current.node) if link.kind in _THROUGH]
        ends = (node for link in links for node in link.targets)
        pids = {node.pid for node in ends if isinstance(node, ProcessNode)}
        below = [view.by_pid[pid] for pid in pids - visited if pid in view.by_pid]
        below = [process for process in below if process.member.role not in ("rank", "launcher")]
        chosen = most_telling(_behind_manager(view, below, visited) or below)
        if chosen is None:
            return end
        visited.add(chosen.pid)
        end = current = chosen
        if chosen.cannot_run or chosen.activity.progresses or rests(chosen):
            return end


def asks_strangers(view: JobView, proc: Process) -> bool:
    """Whether the other end of one of its connections is no process of the job: what it was asked
    for may be worked out there.
    """
    asks = [row for row in proc.blocked if row.kind in ASKS]
    return any(not row.peers or not view.by_pid.keys() >= set(row.peers) for row in asks)
