"""Whom a process waits for in the end, and which threads can end a wait. Pure.

Threads that serve, those with a timer, and those that a signal wakes; through pipes, sockets, locks
and children of the job, or outside of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from grpo_doctor.hang.model.nodes import ProcessNode
from grpo_doctor.hang.model.process.progress import has_time_limit
from grpo_doctor.hang.model.process.stacks import Place, is_heartbeat, place_of, short
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.model.waiting.waits import Graph
from grpo_doctor_probes.evidence import Frame, PythonThread, Thread

# Loops that give every connection to a thread or a process of its own.
_SERVER_LOOPS = ("serve_forever", "accepter")
_LOOP_CODE = re.compile(r"/socketserver\.py$|/multiprocess\w*/managers\.py$")
_WAITS = ("accept", "select", "poll", "wait")
_WAIT_CODE = re.compile(r"/(socket|selectors|threading|multiprocess\w*/connection)\.py$")
_EPOLL, _POLL = ("do_epoll_wait", "ep_poll"), "poll_schedule_timeout"
_EPOLL_LIMIT, _POLL_LIMIT = 3, 2  # the arguments that have it
_FOR_EVER = (2**32 - 1, 2**64 - 1, 0)  # -1 as int or long; a null pointer of ppoll
_FOR_SIGNALS = ("sys_pause", "sigsuspend")
_OPERATION, _OF_ONE_PROCESS = 1, 128  # the argument of futex that says whose threads share it


def only_accepts(thread: PythonThread) -> bool:
    """Return whether it waits for a new connection, or for the server's own end."""
    frames = thread.frames
    inner = next((i for i, frame in enumerate(frames) if not _is_wait(frame)), len(frames))
    loop = frames[inner] if inner < len(frames) else None
    if loop is not None and short(loop.function) in _SERVER_LOOPS and _LOOP_CODE.search(loop.file):
        return True
    return bool(frames) and short(frames[0].function) == "accept" and _is_wait(frames[0])


def _is_wait(frame: Frame) -> bool:
    return short(frame.function) in _WAITS and _WAIT_CODE.search(frame.file) is not None


def serving(proc: Process) -> frozenset[int] | None:
    """The threads of which one may answer; None for all, where no thread is seen to serve."""
    accepting = {thread.tid for thread in proc.python_threads if only_accepts(thread)}
    if not accepting or not _handlers(proc) or proc.look is None:
        return None
    return frozenset(thread.tid for thread in proc.look.threads) - accepting


def place_of_server(proc: Process) -> Place:
    """Where the thread stands that serves a connection, if it is the only one; else its own."""
    accepts = any(only_accepts(thread) for thread in proc.python_threads)
    handlers = _handlers(proc) if accepts else []
    return place_of(handlers[0]) if len(handlers) == 1 else proc.blocking_place


def _handlers(proc: Process) -> list[PythonThread]:
    own = (t for t in proc.python_threads if t.frames and not is_heartbeat(t.name))
    return [thread for thread in own if not only_accepts(thread)]


def has_timer(proc: Process) -> bool:
    """Whether one of its Python threads sleeps until a time: neither in a server's loop nor by the
    clock of a library. Without the right to read its arguments a sleep may be one.
    """
    threads = (proc.thread(thread.tid) for thread in _handlers(proc))
    return any(thread is not None and _is_timed(thread) for thread in threads)


def _is_timed(thread: Thread) -> bool:
    if "nanosleep" in thread.wchan:
        return True
    if thread.wchan.startswith("futex"):
        return not thread.arguments or has_time_limit(thread)
    if thread.wchan.startswith(_EPOLL):
        return _limit(thread, _EPOLL_LIMIT) not in _FOR_EVER
    if thread.wchan.startswith(_POLL):
        return _limit(thread, _POLL_LIMIT) not in _FOR_EVER
    return False


def _limit(thread: Thread, position: int) -> int:
    """1 where it can't be read: then it may have one."""
    return thread.arguments[position] if len(thread.arguments) > position else 1


def only_by_signals(proc: Process) -> bool:
    """Whether each of its threads sleeps until another one of them, or a signal, wakes it, and none
    ran between the looks. Whatever may come from outside, such as bytes, a child's end or a time,
    speaks against it.
    """
    look = proc.look
    if look is None or proc.activity.kind != "still" or not look.threads:
        return False
    since_ns = look.at_ns - int(proc.activity.seconds * 1e9)
    return all(0 < thread.last_ran_ns <= since_ns and _for_ever(thread) for thread in look.threads)


def _for_ever(thread: Thread) -> bool:
    if thread.state != "S":
        return False
    if thread.wchan.endswith(_FOR_SIGNALS):
        return True
    readable = thread.wchan.startswith("futex") and len(thread.arguments) > _OPERATION
    own = readable and bool(thread.arguments[_OPERATION] & _OF_ONE_PROCESS)
    return own and not has_time_limit(thread)


# An engine or a task may be what a thread waits for, but which thread of a process asks it is not
# always seen: its own causes say so, and a judge's socket must not be taken for its wait.
_THROUGH = ("pipe", "socket", "child", "lock")
_AT_REST = ("still", "polling", "unknown")
ASKS = ("socket-receive", "socket-connect", "socket-send")


def rests(proc: Process) -> bool:
    """Return whether a worker waits for its next task."""
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
    """Return whether the other end of one of its connections is no process of the job: what it was
    asked for may be worked out there.
    """
    asks = [row for row in proc.blocked if row.kind in ASKS]
    return any(not row.peers or not view.by_pid.keys() >= set(row.peers) for row in asks)
