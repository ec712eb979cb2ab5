"""What a Python stack is doing: the call it is in, what that is for, the user's own line, and which
other thread of its process that waits for. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from grpo_doctor.hang.model.process.known_code import (
    CALLS,
    FRAMEWORK,
    IN_TORCH,
    LIBRARY,
    LONG_WORK,
    PHASE_OF,
    PURPOSES,
    WRAPPERS,
    Call,
    Purpose,
    Rule,
    short,
)
from grpo_doctor_probes.evidence import Blocked, Frame, PythonThread

# Python threads that wake regularly in healthy and stuck processes alike.
_HEARTBEATS = ("tqdmmonitor", "heartbeat", "grpo", "pin_memory", "queuefeeder", "wandb", "asyncio_")
# A library's function called `score` or `compile` says nothing; its file must say it.
_BY_FILE = tuple(rule for rule in PURPOSES if rule.file is not None)
_POOL_CODE = re.compile(r"concurrent/futures/thread|multiprocessing/pool|/queue\.py|/threading\.py")
_LOOPS = ("_worker", "worker")  # of an executor's and of a pool's thread
_AWAITS_TASK = (*_LOOPS, "get", "wait")
# Rows of a helper thread that it has not by nature: event loops and idle workers have others.
_TELLING = frozenset(
    {"file", "fifo-open", "pipe-write", "socket-receive", "socket-send", "socket-connect"}
    | {"file-lock", "child"}
)
_JOINS = ("join", "_wait_for_tstate_lock", "_shutdown")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a thread stands. `operation` is the library function, such as `all_reduce`.

    `purposes` are innermost first. `user` is the innermost frame that is the user's own, `frames`
    the whole stack, innermost first. All empty for a thread without Python frames.
    """

    call: Call = ""
    operation: str = ""
    purposes: tuple[Purpose, ...] = ()
    user: Frame | None = None
    frames: tuple[Frame, ...] = ()

    @property
    def purpose(self) -> Purpose | None:
        """What the work is for; the innermost where several are nested."""
        return self.purposes[0] if self.purposes else None

    @property
    def phase(self) -> str | None:
        """The phase of `grpo_doctor.phases`, None where the stack does not show it."""
        phases = (PHASE_OF[purpose] for purpose in self.purposes)
        return next((phase for phase in phases if phase is not None), None)

    @property
    def long_work(self) -> Purpose | None:
        """Work that may take minutes in a healthy job, if the stack is in any.

        A function that generates and scores is in its rewards while it scores.
        """
        for inner, purpose in enumerate(self.purposes):
            scoring = purpose == "generate" and not LONG_WORK.issuperset(self.purposes[:inner])
            if purpose in LONG_WORK and not scoring:
                return purpose
        return None

    @property
    def communicates(self) -> bool:
        """Whether it is in a call that needs other ranks."""
        return self.call in ("collective", "p2p", "store")

    @property
    def in_torch(self) -> bool:
        """Whether its innermost frame is one of torch's that wait for other ranks' results."""
        return bool(self.frames) and IN_TORCH.search(self.frames[0].file) is not None

    def text(self) -> str:
        """`all_reduce, train.py:31 in step`."""
        inner = self.frames[0] if self.frames else None
        frame = self.user or inner
        if frame is None:
            return ""
        line = f"{frame.file.rpartition('/')[2]}:{frame.line} in {frame.function}"
        return f"{self.operation}, {line}" if self.operation else line


def is_library(frame: Frame) -> bool:
    """Whether a frame is of an installed package or the standard library, not of the user."""
    return LIBRARY.search(frame.file) is not None


def place_of(thread: PythonThread | None) -> Place:
    """Reads a thread's stack."""
    if thread is None or not thread.frames:
        return Place()
    frames = thread.frames
    edge = next((i for i, frame in enumerate(frames) if not is_library(frame)), len(frames))
    call, operation = _call(frames[:edge])
    user = frames[edge] if edge < len(frames) else None
    if not call and user is not None:
        call, operation = _called_by_user(frames)
    return Place(call, operation, _purposes(frames), user, frames)


def _call(inner: Sequence[Frame]) -> tuple[Call, str]:
    """The call that the user's code made: of all frames that match, the outermost of its rule.

    The outermost, because `barrier` calls `wait` and `all_gather_object` calls `all_gather`.
    """
    for rule in CALLS:
        hits = [short(frame.function) for frame in inner if rule.covers(frame.function, frame.file)]
        names = [name for name in hits if name not in WRAPPERS]
        if names:
            return cast("Call", rule.means), names[-1]
    return "", ""


def _called_by_user(frames: Sequence[Frame]) -> tuple[Call, str]:
    """Where frames of a library are under another path, such as a source checkout of torch."""
    return _call(frames[:6]) if "torch/distributed" in frames[0].file else ("", "")


def _purposes(frames: Sequence[Frame]) -> tuple[Purpose, ...]:
    purposes: dict[Purpose, None] = {}
    for frame in frames:
        is_named = not is_library(frame) or FRAMEWORK.search(frame.file) is not None
        rule = _first(PURPOSES if is_named else _BY_FILE, frame)
        if rule is not None:
            purposes.setdefault(cast("Purpose", rule.means))
    return tuple(
        purpose for purpose in purposes if purpose != "evaluate" or purpose == list(purposes)[-1]
    )


def _first(rules: Sequence[Rule], frame: Frame) -> Rule | None:
    return next((rule for rule in rules if rule.covers(frame.function, frame.file)), None)


def is_heartbeat(thread_name: str) -> bool:
    """Whether a thread of this name wakes by a clock, so that its moves say nothing."""
    return thread_name.lower().startswith(_HEARTBEATS)


def works_for_pool(thread: PythonThread) -> bool:
    """Whether it is a pool's thread in the midst of a task."""
    loop = next((i for i, frame in enumerate(thread.frames) if _is_of_pool(frame, _LOOPS)), None)
    if loop is None:
        return False
    # A task may wait too, as the loop does without one: then other code lies between.
    task = thread.frames[:loop]
    return any(not _is_of_pool(frame, _AWAITS_TASK) for frame in task)


def _is_of_pool(frame: Frame, functions: Sequence[str]) -> bool:
    return _POOL_CODE.search(frame.file) is not None and short(frame.function) in functions


def awaited(
    place: Place, threads: Sequence[PythonThread], rows: Sequence[Blocked] = ()
) -> PythonThread | None:
    """Return the thread that a main thread at `place` waits for, if it is known.

    Of a pool any thread with a task, one that is blocked before others. A `join` means the only
    thread that runs the user's code; so may a queue, an event or a lock, but only one whose code
    says which part of a step it is, or one that is blocked: a logger's thread is in user code as
    well.
    """
    blocked = {row.tid for row in rows if row.kind in _TELLING}
    at_work = [thread for thread in threads if works_for_pool(thread)]
    if place.call in ("pool", "asyncio"):
        return min(at_work, key=lambda t: (t.tid not in blocked, t.tid), default=None)
    if place.call not in ("lock", "queue"):
        return None
    stuck = [thread for thread in threads if thread.tid in blocked]
    if len(stuck) == 1:
        return stuck[0]
    own = [t for t in threads if place_of(t).user is not None and not is_heartbeat(t.name)]
    if place.operation not in _JOINS:
        own = [thread for thread in own if place_of(thread).phase is not None]
    return own[0] if len(own) == 1 else None
