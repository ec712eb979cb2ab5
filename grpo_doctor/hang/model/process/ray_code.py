"""Ray's own frames and process titles: whether a process has a task, and which thread does it.

Ray gives each of its processes a title: `ray::Worker.update` with a task, `ray::Worker` without,
`ray::function` for a task of no actor. Coroutines, and tasks of actors with several threads, are
not done by the main thread.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from grpo_doctor.hang.model.process.stacks import LIBRARY, is_of_framework, short, works_for_pool
from grpo_doctor_probes.evidence import Frame, Member, PythonThread

_WORKER = re.compile(r"/ray/_private/worker\.py$")
_STARTED = re.compile(r"/ray/_private/workers/default_worker\.py$")
_ASKS = ("get", "wait")
LOOP_THREAD = re.compile(r"^AsyncIO Thread|\(run_forever\)$")
_AGENTS = re.compile(r"ray::(DashboardAgent|RuntimeEnvAgent|IDLE_|SPILL|RESTORE|DELETE)")
_DAEMONS = re.compile(r"/ray/(core|autoscaler|dashboard|_private|util)/")
_EVENTS = re.compile(r"/asyncio/base_events\.py$")
# Pools that a library keeps for itself, however long.
_SERVICE = re.compile(
    r"/(site|dist)-packages/(?!(verl|openrlhf|trl|swift|transformers|vllm|sglang)/)"
)
# Not `/ray/` alone: Ray keeps the files of a job's working directory under /tmp/ray/session_...
_RAYS_OWN = r"(?:^|/)(?:python|site-packages|dist-packages)/ray/"
_OF_RAY = re.compile(_RAYS_OWN)
_INSIDE = re.compile(_RAYS_OWN + r"|^<|/lib(64)?/python\d[^/]*/(?!site-packages|dist-packages)")


def in_loop(frames: Sequence[Frame]) -> bool:
    """Return whether a thread waits for its next task."""
    return bool(frames) and _is_of_worker(frames[0], ("main_loop",))


def asks(frames: Sequence[Frame]) -> bool:
    """Return whether a thread waits in `ray.get` or `ray.wait` for what others work out."""
    inner = takewhile(lambda frame: _INSIDE.search(frame.file), frames)
    return any(_is_of_worker(frame, _ASKS) for frame in inner)


def _is_of_worker(frame: Frame, functions: Sequence[str]) -> bool:
    return short(frame.function) in functions and _WORKER.search(frame.file) is not None


def is_actor(member: Member) -> bool:
    """Return whether it is one of Ray's workers, busy or idle, and none of its agents."""
    return member.command.startswith("ray::") and _AGENTS.match(member.command) is None


def title_of(member: Member) -> str:
    """`Worker.update` or `Worker`: what Ray calls one of its workers; empty for all others."""
    title = member.command.partition(" ")[0].removeprefix("ray::").removesuffix("()")
    return title if is_actor(member) else ""


def task_of(member: Member, frames: Sequence[Frame]) -> str:
    """`Worker.update`, or the name of a function; empty for one without a task, and for others."""
    title = title_of(member)
    started = any(_STARTED.search(frame.file) for frame in frames)
    beside = bool(frames) and not started  # by another thread than the main one
    works = (started or beside) and not in_loop(frames)
    return title if "." in title or works else ""


def carrier(threads: Sequence[PythonThread], main: PythonThread | None) -> PythonThread | None:
    """The thread that does the task: another than the main one where that waits for the next."""
    if main is None or not in_loop(main.frames):
        return main
    at_work = [thread for thread in threads if thread is not main and carries(thread)]
    return min(at_work, key=_least_telling, default=main)


def carries(thread: PythonThread) -> bool:
    """Whether a thread of an actor is in the midst of a task: one that Ray's own code called, one
    that an actor's coroutine gave to a pool, or the event loop itself, which a coroutine holds up.
    """
    own = [i for i, frame in enumerate(thread.frames) if not _INSIDE.search(frame.file)]
    if not own:
        return False
    outer = thread.frames[own[-1] :]
    started = any(frame.file.endswith("/threading.py") for frame in outer)
    if not started and any(_OF_RAY.search(frame.file) for frame in outer):
        return True  # Ray traces methods that an actor runs in threads of its own, too
    if works_for_pool(thread):
        return any(not _SERVICE.search(thread.frames[i].file) for i in own)
    turns = any(
        _EVENTS.search(frame.file) and short(frame.function) == "_run_once" for frame in outer
    )
    return turns and not waits_for_events(thread)


def waits_for_events(thread: PythonThread) -> bool:
    """Return whether it is an event loop that has nothing to run: its coroutines all wait.

    That of uvloop is C code without a line of its own.
    """
    inner = thread.frames[:3]
    nothing_but_threading = all(frame.file.endswith("/threading.py") for frame in thread.frames)
    in_c = any(frame.file.endswith("/asyncio/runners.py") for frame in inner[:1]) or (
        nothing_but_threading and LOOP_THREAD.search(thread.name)
    )
    selects = any(frame.file.endswith("/selectors.py") for frame in inner)
    return bool(inner) and (selects or bool(in_c))


def _least_telling(thread: PythonThread) -> tuple[bool, bool, int]:
    """The user's own code says most, then a framework's; a library's thread may always be there."""
    files = [frame.file for frame in thread.frames]
    users = any(not LIBRARY.search(file) and not file.startswith("<") for file in files)
    return not users, not any(map(is_of_framework, files)), thread.tid


def serves(member: Member) -> bool:
    """Return whether it is a daemon or agent of Ray's own, or a worker without an actor: they wake
    and write whether or not the job makes progress.
    """
    title = member.command.partition(" ")[0]
    own = _DAEMONS.search(member.command) is not None or _AGENTS.match(title) is not None
    return own or title == "ray::IDLE"


def drives(member: Member, frames: Sequence[Frame]) -> bool:
    """Whether it is the program that started the actors: no actor, and not one of Ray's daemons."""
    own = any(not _INSIDE.search(frame.file) for frame in frames)
    return member.role == "ray" and not is_actor(member) and own and not serves(member)
