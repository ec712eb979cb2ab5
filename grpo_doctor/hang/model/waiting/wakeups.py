"""Which threads can end a wait: those that serve, those with a timer, those that a signal wakes.
Pure.
"""

from __future__ import annotations

import re

from grpo_doctor.hang.model.process.call_stack import Place, is_heartbeat, place_of
from grpo_doctor.hang.model.process.known_code import short
from grpo_doctor.hang.model.process.progress import has_time_limit
from grpo_doctor.hang.model.view import Process
from grpo_doctor_probes.evidence import Frame, PythonThread, Thread

# Loops that give every connection to a thread or a process of its own.
_SERVER_LOOPS = ("serve_forever", "accepter")
_LOOP_CODE = re.compile(r"/socketserver\.py$|/multiprocessing/managers\.py$")
_WAITS = ("accept", "select", "poll", "wait")
_WAIT_CODE = re.compile(r"/(socket|selectors|threading|multiprocessing/connection)\.py$")
_EPOLL, _POLL = ("do_epoll_wait", "ep_poll"), "poll_schedule_timeout"
_EPOLL_LIMIT, _POLL_LIMIT = 3, 2  # the arguments that have it
_FOR_EVER = (2**32 - 1, 2**64 - 1, 0)  # -1 as int or long; a null pointer of ppoll
_FOR_SIGNALS = ("sys_pause", "sigsuspend")
_OPERATION, _OF_ONE_PROCESS = 1, 128  # the argument of futex that says whose threads share it


def only_accepts(thread: PythonThread) -> bool:
    """Whether it waits for a new connection, or for the server's own end."""
    frames = thread.frames
    inner = next((i for i, frame in enumerate(frames) if not _is_wait(frame)), len(frames))
    if inner < len(frames) and _is_loop(frames[inner]):
        return True
    return bool(frames) and short(frames[0].function) == "accept" and _is_wait(frames[0])


def _is_wait(frame: Frame) -> bool:
    return short(frame.function) in _WAITS and _WAIT_CODE.search(frame.file) is not None


def _is_loop(frame: Frame) -> bool:
    return short(frame.function) in _SERVER_LOOPS and _LOOP_CODE.search(frame.file) is not None


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
