"""What a Python stack is doing: the call it is in, what that is for, and the user's own line."""

from __future__ import annotations

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
from grpo_doctor_probes.evidence import Frame, PythonThread

# A library's function called `score` or `compile` says nothing; its file must say it.
_BY_FILE = tuple(rule for rule in PURPOSES if rule.file is not None)


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
        """The phase of `grpo_doctor.phases`, None where the stack does not tell."""
        found = (PHASE_OF[purpose] for purpose in self.purposes)
        return next((phase for phase in found if phase is not None), None)

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
        named = [name for name in hits if name not in WRAPPERS]
        if named:
            return cast("Call", rule.means), named[-1]
    return "", ""


def _called_by_user(frames: Sequence[Frame]) -> tuple[Call, str]:
    """Where frames of a library are under another path, such as a source checkout of torch."""
    return _call(frames[:6]) if "torch/distributed" in frames[0].file else ("", "")


def _purposes(frames: Sequence[Frame]) -> tuple[Purpose, ...]:
    found: dict[Purpose, None] = {}
    for frame in frames:
        named = not is_library(frame) or FRAMEWORK.search(frame.file) is not None
        rule = _first(PURPOSES if named else _BY_FILE, frame)
        if rule is not None:
            found.setdefault(cast("Purpose", rule.means))
    return tuple(one for one in found if one != "evaluate" or one == list(found)[-1])


def _first(rules: Sequence[Rule], frame: Frame) -> Rule | None:
    return next((rule for rule in rules if rule.covers(frame.function, frame.file)), None)
