"""Which threads of a server can end the wait of a process that is connected to it. Pure.

Its accept loop and its housekeeping wake by their own clocks for as long as it lives; who is
connected already waits for neither.
"""

from __future__ import annotations

import re

from grpo_doctor.hang.model.process.known_code import short
from grpo_doctor.hang.model.process.places import Place, place_of
from grpo_doctor.hang.model.process.progress import is_heartbeat
from grpo_doctor.hang.model.scene import Actor
from grpo_doctor_probes.evidence import Frame, PythonThread

# Loops that give every connection to a thread or a process of its own.
_LOOPS = ("serve_forever", "accepter")
_LOOP_CODE = re.compile(r"/socketserver\.py$|/multiprocessing/managers\.py$")
_WAITS = ("accept", "select", "poll", "wait")
_WAIT_CODE = re.compile(r"/(socket|selectors|threading|multiprocessing/connection)\.py$")


def only_accepts(thread: PythonThread) -> bool:
    """Whether it waits for a new connection, or for the server's own end."""
    frames = thread.frames
    inner = next((i for i, one in enumerate(frames) if not _is_wait(one)), len(frames))
    if inner < len(frames) and _is_loop(frames[inner]):
        return True
    return bool(frames) and short(frames[0].function) == "accept" and _is_wait(frames[0])


def _is_wait(frame: Frame) -> bool:
    return short(frame.function) in _WAITS and _WAIT_CODE.search(frame.file) is not None


def _is_loop(frame: Frame) -> bool:
    return short(frame.function) in _LOOPS and _LOOP_CODE.search(frame.file) is not None


def serving(actor: Actor) -> frozenset[int] | None:
    """The threads of which one may answer; None for all, where no thread is seen to serve."""
    accepting = {one.tid for one in actor.python_threads if only_accepts(one)}
    if not accepting or not _handlers(actor) or actor.look is None:
        return None
    return frozenset(thread.tid for thread in actor.look.threads) - accepting


def place_of_server(actor: Actor) -> Place:
    """Where the thread stands that serves a connection, if it is the only one; else its own."""
    accepts = any(only_accepts(one) for one in actor.python_threads)
    handlers = _handlers(actor) if accepts else []
    return place_of(handlers[0]) if len(handlers) == 1 else actor.deed


def _handlers(actor: Actor) -> list[PythonThread]:
    own = [one for one in actor.python_threads if one.frames and not is_heartbeat(one.name)]
    return [one for one in own if not only_accepts(one)]
