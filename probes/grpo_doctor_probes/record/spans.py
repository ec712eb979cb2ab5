"""The public spans: `phase` and `step` as context managers and decorators.

The hot path. A span costs one object, two clock reads, three words in the header's open-span
stack and one 32-byte record; `benchmarks/recorder.py` compares it with its peers.
"""

from __future__ import annotations

from time import monotonic_ns

from grpo_doctor_probes.record import layout, recorder

TYPE_CHECKING = False  # `typing` costs 7 ms of import in the job
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from grpo_doctor_probes.record.threads import Level

    _F = TypeVar("_F", bound=Callable[..., object])

_PLAIN = (str, int, float, bool, type(None))


class phase:  # noqa: N801 - reads like the built-in context managers it sits beside
    """Times a phase of the step: `with phase("rollout"):` or `@phase("reward")`.

    Args:
        name: a phase (`rollout`) or a sub-span of one (`rollout/generate`).
        **args: few-valued details, such as `direction="to_cpu"`; each set of values is a name of
            its own in the file, so nothing that differs from step to step belongs here.

    Never raises and never blocks. Does nothing unless the process is being recorded. One object
    is one span at a time: make it where it is used.
    """

    __slots__ = ("_key", "_level", "_start_ns", "_word")
    _level: Level  # not set while the span is not recorded

    def __init__(self, name: str, /, **args: object) -> None:
        self._key: object = (name, _details(args)) if args else name

    def __enter__(self) -> None:
        active = recorder.ACTIVE
        if active is None:
            active = recorder.start_if_asked()
            if active is None:
                return
        try:
            start_ns = monotonic_ns()
            if start_ns > active.check_at_ns and active.is_lost(start_ns):
                return
            try:
                thread = active.local.state
                level = thread.level
                word = level.words[self._key]
            except (AttributeError, KeyError):  # the first of this thread, level or name
                level, word = active.level_for(self._key)
                thread = level.thread
            self._word = word
            if active.cuda is not None:
                active.cuda.begin(level)
            thread.level = level.next  # set: a level with words has one above
            self._level = level
            cell = level.cell
            cell[0] = self._start_ns = monotonic_ns()
            cell[1] = word  # last, and never 0: this makes it an open span
        except Exception:  # noqa: BLE001 - a guest never raises into its host
            recorder.note_error()

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        active = recorder.ACTIVE
        end_ns = monotonic_ns()
        if active is None or (end_ns > active.check_at_ns and active.is_lost(end_ns)):
            return
        if error is not None:
            recorder.quietly(_note, self._key, error)
        try:
            level = self._level
            thread = level.thread
            if thread.in_order is active and thread.level is level.next:
                thread.level = level
                level.cell[1] = 0
            elif thread.owner is active:
                thread.leave(level)
            else:  # recording was stopped and started in between, or the process forked
                return
            rows, starts, ends, _, words = active.segment
            try:
                row = next(rows)
                starts[row] = self._start_ns
                ends[row] = end_ns
                words[row] = self._word  # last: this makes it a record
            except StopIteration:  # the segment is full
                active.append(self._word, self._start_ns, end_ns)
            if level.cuda_start is not None:
                self._finish_cuda(active, level, end_ns)
        except AttributeError:  # recording began within the span
            if hasattr(self, "_level"):
                recorder.note_error()
        except Exception:  # noqa: BLE001 - a guest never raises into its host
            recorder.note_error()

    def __call__(self, function: _F) -> _F:
        """Decorates a function, a coroutine function or a generator function of either kind."""
        from grpo_doctor_probes.record.decorate import timed  # noqa: PLC0415 - `functools` costs 3 ms

        return timed(self._again, function)

    def _again(self, *_: object, **__: object) -> phase:
        if isinstance(self._key, tuple):
            name, details = self._key
            return phase(name, **dict(details))
        return phase(str(self._key))

    def _finish_cuda(self, active: recorder.Recorder, level: Level, end_ns: int) -> None:
        start, level.cuda_start = level.cuda_start, None
        if active.cuda is not None:
            active.cuda.finish(start, self._word, self._start_ns, end_ns)


class step(phase):  # noqa: N801
    """Marks one optimizer step: `with step(7):`. Everything of the step belongs inside."""

    __slots__ = ("_number",)

    def __init__(self, number: float) -> None:
        self._key = recorder.STEP_KEY
        try:
            self._number = float(number)
        except (TypeError, ValueError, OverflowError):
            self._number = -1.0
            recorder.note_error()

    def __enter__(self) -> None:
        active = recorder.ACTIVE or recorder.start_if_asked()
        if active is None:
            return
        super().__enter__()
        if recorder.ACTIVE is not active:
            return
        try:
            active.pauses.forget()
            active.file.state[layout.STATE_STEP] = max(0, int(self._number) + 1)
            active.watch_cuda()
        except Exception:  # noqa: BLE001 - a guest never raises into its host
            recorder.note_error()

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        active = recorder.ACTIVE
        if active is None:
            return
        try:
            level = getattr(self, "_level", None)
            if level is None or level.thread.owner is not active:
                return  # of the process that forked this one
            if active.is_lost(monotonic_ns()):
                return
            if error is not None:
                recorder.quietly(_note, self._key, error)
            end_ns = monotonic_ns()
            # Just before the end: a counter counts to the step in which it lies.
            active.write_pauses(end_ns - 1)
            level.thread.leave(level)
            active.append(self._word, self._start_ns, end_ns, self._number)
            if level.cuda_start is not None:
                self._finish_cuda(active, level, end_ns)
        except Exception:  # noqa: BLE001 - a guest never raises into its host
            recorder.note_error()

    def _again(self, *_: object, **__: object) -> step:
        return step(self._number)


def _note(key: object, error: BaseException) -> None:
    # The import may fail as well: at the end of the interpreter, on a full disk.
    from grpo_doctor_probes.record.failures import note_cut, note_failure  # noqa: PLC0415 - seldom

    note_cut(error) if key is recorder.STEP_KEY else note_failure(key, error)


def _details(args: dict[str, object]) -> tuple[tuple[str, object], ...]:
    # Only plain values: a tensor here would be kept alive, and its text would wait for the GPU.
    return tuple(
        (name, value if isinstance(value, _PLAIN) else type(value).__name__)
        for name, value in sorted(args.items())
    )
