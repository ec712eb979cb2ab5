"""What each sample of a rollout does with its time: rows of `ranks/<stem>.trajectories`.

The file is laid out as a span file, and its rows are as long. A trajectory, and each of its parts
(a request to the engine, a call of a tool), is written when it begins, as open, and completed in
place when it ends, so that one which never ends is in the file too. Facts of a trajectory are rows
of their own. No text of a prompt or an answer is written, only names of states, tools and facts.
"""

from __future__ import annotations

import os
from _thread import allocate_lock
from contextlib import nullcontext
from contextvars import ContextVar
from itertools import count
from time import monotonic_ns

from grpo_doctor_probes.record import layout, recorder
from grpo_doctor_probes.record.rundir import TRAJECTORIES_SUFFIX
from grpo_doctor_probes.record.spanfile import SpanFile, encoded_name

TYPE_CHECKING = False  # `typing` costs 7 ms of import in the job
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Any

# How a trajectory or a part ended: the value of its row.
OPEN, DONE, FAILED, TIMED_OUT, ABORTED = -1.0, 0.0, 1.0, 2.0, 3.0
# States of a trajectory, as parts are named; a call is `tool/NAME`, a judged sample `reward/NAME`.
QUEUE, GENERATE, TOOL, REWARD = "queue", "generate", "tool", "reward"
# What the engine does with a request meanwhile, in rows of its own process; see `served`.
ENGINE_QUEUE, PREFILL, DECODE, PAUSED = "engine queue", "prefill", "decode", "paused"
EVALUATION = "evaluation"  # why a sample is none of the run's trajectories
# Parts of no trajectory: what an environment does before one begins.
NO_TRAJECTORY = 0
_KEY_BYTES = 6  # so that a key is exact as a floating-point number
_CHECK_EVERY_NS = 1_000_000
_NAME = "trajectory"
_LOCK = allocate_lock()
_PATIENCE_S = 1.0


class TrajectoryFile:
    """Writes the rows of one process. Raises OSError if its file can't be made."""

    def __init__(self, active: recorder.Recorder) -> None:
        self._recorder = active
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        path = active.stem + TRAJECTORIES_SUFFIX
        descriptor = os.open(path, flags, 0o600)
        try:
            self.file = SpanFile(descriptor, active.rank, active.max_bytes)
        except BaseException:
            os.close(descriptor)
            os.unlink(path)  # noqa: PTH108 - no pathlib in the job
            raise
        self._segment = self.file.segment
        self._names: dict[str, int] = {}
        self._serials = count(1)
        self.salt = int.from_bytes(os.urandom(3), "big") << 24
        self._check_at_ns = 0

    def next_serial(self) -> int:
        """Return a number that no trajectory has had for 16 million of them."""
        return next(self._serials) & layout.SEQUENCE_MASK or self.next_serial()

    def append(
        self, kind: int, serial: int, name: str, now_ns: int, value: float
    ) -> tuple[Any, Any, Any, int] | None:
        """Write a row that begins now; return its columns and place, None where it is lost."""
        if self.is_lost(now_ns):
            return None
        word = self._name_id(name) | serial << layout.THREAD_SHIFT | kind << layout.KIND_SHIFT
        rows, starts, ends, values, words = self._segment
        while (row := next(rows, None)) is None:
            rows, starts, ends, values, words = self._segment = self.file.exchange(rows)
            if not words:
                return None
        starts[row] = ends[row] = now_ns
        values[row] = value
        words[row] = word  # last: this makes it a row
        return starts, ends, values, row

    def _name_id(self, name: str) -> int:
        identity = self._names.get(name)
        if identity is None:
            identity = self.file.add_name(encoded_name(name))
            if identity:  # else the table is full, and names have no end
                self._names[name] = identity
        return identity

    def is_lost(self, now_ns: int) -> bool:
        """Return whether nothing may be written any more: the recording has ended, this is a
        forked child, or another program made the file shorter."""
        if recorder.ACTIVE is not self._recorder:
            return True
        if now_ns > self._check_at_ns:
            if not self.file.is_whole():
                return True
            self._check_at_ns = now_ns + _CHECK_EVERY_NS
        return False


class Part:
    """A stretch of a trajectory in one state, from when it is made until `end`."""

    __slots__ = ("_file", "_place", "_start_ns")

    def __init__(self, file: TrajectoryFile, kind: int, serial: int, name: str) -> None:
        self._file = file
        self._start_ns = monotonic_ns()
        self._place = file.append(kind, serial, name, self._start_ns, OPEN)

    def end(self, outcome: float = DONE) -> None:
        """Complete the row, once."""
        place, self._place = self._place, None
        now_ns = monotonic_ns()
        if place is None or self._file.is_lost(now_ns):
            return
        starts, ends, values, row = place
        if starts[row] == self._start_ns:  # else its segment is used again
            ends[row] = now_ns
            values[row] = outcome

    def __enter__(self) -> Part:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.end(outcome_of(kind))


class Trajectory(Part):
    """One sample of a rollout, from when it is made until `end`."""

    __slots__ = ("serial",)

    def __init__(self, file: TrajectoryFile) -> None:
        self.serial = file.next_serial()
        super().__init__(file, layout.TRAJECTORY, self.serial, _NAME)

    @property
    def key(self) -> float:
        """A number that stands for it in other processes too, for `taken`."""
        return float(self._file.salt | self.serial)

    def part(self, name: str) -> Part:
        """Return a part that begins now."""
        return Part(self._file, layout.PART, self.serial, name)

    def note(self, **facts: float | None) -> None:
        """Write facts; None for those that are unknown."""
        self.note_at(monotonic_ns(), **facts)

    def note_at(self, now_ns: int, /, **facts: float | None) -> None:
        """Write facts of a moment before now."""
        for name, value in facts.items():
            if value is not None:
                self._file.append(layout.FACT, self.serial, name, now_ns, float(value))


# The trajectory that a coroutine, or what it awaits, works for.
CURRENT: ContextVar[Trajectory | None] = ContextVar("grpo_doctor_trajectory", default=None)


def begin() -> Trajectory | None:
    """Begin a trajectory; None where nothing is recorded. Never raises."""
    try:
        file = opened()
        return None if file is None else Trajectory(file)
    except Exception:  # noqa: BLE001 - a guest never raises into its host
        recorder.note_error()
        return None


def part(name: str, of: Trajectory | None = None) -> AbstractContextManager[object]:
    """Return a part of a trajectory (default: the current one), for `with`. Never raises."""
    one = of or CURRENT.get()
    return nullcontext() if one is None else _within(lambda: one.part(name))


def apart(name: str) -> AbstractContextManager[object]:
    """Return a part of no trajectory, for `with`. Never raises."""
    kind, of = layout.PART, NO_TRAJECTORY
    return _within(lambda: Part(file, kind, of, name) if (file := opened()) else None)


def _within(make: Callable[[], Part | None]) -> AbstractContextManager[object]:
    try:
        return make() or nullcontext()
    except Exception:  # noqa: BLE001 - a guest never raises into its host
        recorder.note_error()
        return nullcontext()


def key_of(name: object) -> float:
    """Return the same number for the same text, in every process."""
    from hashlib import blake2b  # noqa: PLC0415 - the frameworks that give names have loaded it

    return float(
        int.from_bytes(blake2b(str(name).encode(), digest_size=_KEY_BYTES).digest(), "big")
    )


def asked(request: object) -> None:
    """Note that the current trajectory asks the engine, by the name of the request there."""
    one = CURRENT.get()
    if one is not None:
        one.note(asked=key_of(request))


def served(request: object, since: list[tuple[str, int]], outcome: float = DONE) -> None:
    """Record of whichever trajectory asks for this in which states it was, and since when each.

    The last one ends now, with the outcome. To be called once `opened` was, since an older row
    counts for nothing.
    """
    file, now_ns = opened(), monotonic_ns()
    if file is None:
        return
    serial = file.next_serial()
    file.append(layout.FACT, serial, "serves", now_ns, key_of(request))
    ends_ns = [start_ns for _, start_ns in since[1:]]
    outcomes = [DONE] * len(ends_ns)
    for (name, start_ns), end_ns, value in zip(since, [*ends_ns, now_ns], [*outcomes, outcome]):
        place = file.append(layout.PART, serial, name, start_ns, value)
        if place is not None:
            place[1][place[3]] = end_ns


def taken(
    key: float, reason: str = "", staleness: float | None = None, at_ns: int | None = None,
    version: float | None = None,
) -> None:  # fmt: skip
    """Record, in the trainer, that it took a sample, or dropped it for a `reason`; now or then.

    Where it does not know the `staleness`, the `version` of its weights may say that.
    """
    one = begin()
    if one is not None:
        step = recorder.ACTIVE.file.state[layout.STATE_STEP] if recorder.ACTIVE else 0
        now_ns = at_ns or monotonic_ns()
        number = step - 1 if step else None
        one.note_at(now_ns, taken=key, staleness=staleness, step=number, version=version)
        if reason:
            one.note(**{f"dropped/{reason}": 1.0})
        one.end()


def outcome_of(error: type[BaseException] | None) -> float:
    """Return how a part ended that an error of this class left; DONE for None."""
    if error is None:
        return DONE
    names = [kind.__name__ for kind in error.__mro__]
    if "CancelledError" in names:
        return ABORTED
    return TIMED_OUT if any("Timeout" in name for name in names) else FAILED


def opened() -> TrajectoryFile | None:
    """Return this process's file, made once; no row in it is older. None: nothing is recorded."""
    active = recorder.ACTIVE or recorder.start_if_asked()
    if active is None:
        return None
    if active.trajectories is None and _LOCK.acquire(timeout=_PATIENCE_S):
        try:
            active.trajectories = active.trajectories or TrajectoryFile(active)
        except OSError:
            active.trajectories = False
        finally:
            _LOCK.release()
    file: TrajectoryFile | None = active.trajectories or None
    return file
