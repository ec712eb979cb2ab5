"""Ray's own frames and process titles: whether a process has a task, and which thread does it.

Ray gives each of its processes a title: `ray::Worker.update` with a task, `ray::Worker` without,
`ray::function` for a task of no actor. Coroutines, and tasks of actors with several threads, are
not done by the main thread.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from grpo_doctor.hang.process.known_code import short
from grpo_doctor_probes.evidence import Frame, Member, PythonThread

_WORKER = re.compile(r"/ray/_private/worker\.py$")
_STARTED = re.compile(r"/ray/_private/workers/default_worker\.py$")
_ASKS = ("get", "wait")
_INSIDE = re.compile(r"/ray/|^<|/lib(64)?/python\d[^/]*/(?!site-packages|dist-packages)")


def in_loop(frames: Sequence[Frame]) -> bool:
    """Whether a thread waits for its next task."""
    return bool(frames) and _is_of_worker(frames[0], ("main_loop",))


def asks(frames: Sequence[Frame]) -> bool:
    """Whether a thread waits in `ray.get` or `ray.wait` for what others work out."""
    inner = next((i for i, one in enumerate(frames) if not _INSIDE.search(one.file)), len(frames))
    return any(_is_of_worker(one, _ASKS) for one in frames[:inner])


def _is_of_worker(frame: Frame, functions: Sequence[str]) -> bool:
    return short(frame.function) in functions and _WORKER.search(frame.file) is not None


def is_actor(member: Member) -> bool:
    """Whether it is one of Ray's workers, busy or idle."""
    return member.command.startswith("ray::")


def task_of(member: Member, frames: Sequence[Frame]) -> str:
    """`Worker.update`, or the name of a function; empty for one without a task, and for others."""
    title = member.command.partition(" ")[0].removeprefix("ray::")
    if not is_actor(member):
        return ""
    works = any(_STARTED.search(one.file) for one in frames) and not in_loop(frames)
    return title.removesuffix("()") if "." in title or works else ""


def carrier(threads: Sequence[PythonThread], main: PythonThread | None) -> PythonThread | None:
    """The thread that does the task: another than the main one where that waits for the next."""
    if main is None or not in_loop(main.frames):
        return main
    at_work = [one for one in threads if one is not main and _does_task(one)]
    return min(at_work, key=lambda one: one.tid, default=main)


def _does_task(thread: PythonThread) -> bool:
    """Whether Ray's code calls some that is not Ray's in it."""
    own = [i for i, one in enumerate(thread.frames) if not _INSIDE.search(one.file)]
    return bool(own) and any("/ray/" in one.file for one in thread.frames[own[-1] :])


def drives(member: Member, frames: Sequence[Frame]) -> bool:
    """Whether it is the program that started the actors: no actor, and not one of Ray's daemons."""
    own = any(not _INSIDE.search(one.file) for one in frames)
    return member.role == "ray" and not is_actor(member) and own
