"""The public spans: `phase` and `step` as context managers and decorators.

The hot path. A span costs one object, two clock reads, two words in the header's open-span stack
and one 32-byte record; `benchmarks/recorder.py` compares it with its peers.
"""

from __future__ import annotations

import functools
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, TypeVar, cast

from grpo_doctor_probes import layout, recorder
from grpo_doctor_probes.cuda import CudaTimer, cuda_in_use

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_F = TypeVar("_F", bound="Callable[..., Any]")
_pack = layout.RECORD.pack_into
_SEGMENT_BYTES = layout.SEGMENT_BYTES
_MAX_DEPTH = layout.THREAD_DEPTH
# CUDA events cost about 5 us a pair, so only phases and their direct sub-spans get them.
_CUDA_DEPTH = 3
_CO_GENERATOR, _CO_COROUTINE = 0x20, 0x80


class phase:  # noqa: N801 - reads like the built-in context managers it sits beside
    """Times a phase of the step: `with phase("rollout"):` or `@phase("reward")`.

    Args:
        name: a phase (`rollout`) or a sub-span of one (`rollout/generate`).
        **args: few-valued details, such as `direction="to_cpu"`; each set of values is a name of
            its own in the file, so nothing that differs from step to step belongs here.

    Never raises and never blocks. Does nothing unless the process is being recorded.
    """

    __slots__ = ("_cuda_start", "_depth", "_key", "_name_id", "_recorder", "_start_ns", "_thread")
    _kind = layout.SPAN
    _value = 0.0

    def __init__(self, name: str, **args: object) -> None:
        self._key: object = (name, tuple(sorted(args.items()))) if args else name

    def __enter__(self) -> None:
        active = recorder.ACTIVE
        if active is None:
            active = recorder.start_if_asked()
            if active is None:
                self._recorder: recorder.Recorder | None = None
                return
        self._recorder = active
        try:
            try:
                thread = active.local.state
                name_id = active.name_ids[self._key]
            except (AttributeError, KeyError):  # the first span of this thread or of this name
                thread = active.thread()
                name_id = active.name_id(self._key)
            self._thread = thread
            self._name_id = name_id
            self._depth = depth = thread.depth
            thread.depth = depth + 1
            self._cuda_start = (
                active.cuda.mark() if active.cuda is not None and depth < _CUDA_DEPTH else None
            )
            self._start_ns = start_ns = monotonic_ns()
            if depth < _MAX_DEPTH:
                stack = thread.stack
                stack[2 * depth] = start_ns
                stack[2 * depth + 1] = name_id + 1  # last, and never 0: this commits the entry
        except Exception:  # noqa: BLE001 - a guest never raises into its host
            self._recorder = None
            recorder.note_error()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        end_ns = monotonic_ns()
        active = self._recorder
        if active is None or active is not recorder.ACTIVE:  # stopped, or forked in between
            return
        try:
            thread, depth = self._thread, self._depth
            if depth < _MAX_DEPTH:
                thread.stack[2 * depth + 1] = 0
            if thread.depth == depth + 1:  # else: spans of interleaved coroutines
                thread.depth = depth
            segment = active.file.segment
            offset = next(segment.claim)
            if offset >= _SEGMENT_BYTES:
                active.write(self._kind, self._name_id, self._start_ns, end_ns, self._value, depth)
            else:
                _pack(
                    segment.memory,
                    offset,
                    self._start_ns,
                    end_ns,
                    self._value,
                    self._name_id,
                    thread.slot,
                    depth,
                    self._kind,
                )
            if self._cuda_start is not None and active.cuda is not None:
                active.cuda.finish(self._cuda_start, self._name_id, self._start_ns, end_ns, depth)
        except Exception:  # noqa: BLE001 - a guest never raises into its host
            recorder.note_error()

    def __call__(self, function: _F) -> _F:
        """Decorates a function, a coroutine function or a generator function."""
        flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
        if flags & _CO_COROUTINE:
            timed = _timed_coroutine(self._again, function)
        elif flags & _CO_GENERATOR:
            timed = _timed_generator(self._again, function)
        else:
            timed = _timed(self._again, function)
        return cast("_F", functools.wraps(function)(timed))

    def _again(self) -> phase:
        if isinstance(self._key, tuple):
            name, args = self._key
            return phase(name, **dict(args))
        return phase(str(self._key))


class step(phase):  # noqa: N801
    """Marks one optimizer step: `with step(7):`. Everything of the step belongs inside."""

    __slots__ = ("_value",)
    _kind = layout.STEP

    def __init__(self, number: int) -> None:
        super().__init__("step")
        try:
            self._value = float(number)
        except (TypeError, ValueError):
            self._value = -1.0
            recorder.note_error()

    def __enter__(self) -> None:
        super().__enter__()
        active = self._recorder
        if active is not None:
            try:
                active.file.state[layout.STATE_STEP] = max(0, int(self._value) + 1)
                if active.cuda is None and cuda_in_use():
                    active.cuda = CudaTimer(active)
            except Exception:  # noqa: BLE001 - a guest never raises into its host
                recorder.note_error()

    def _again(self) -> step:
        return step(int(self._value))


def _timed(again: Callable[[], phase], function: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        with again():
            return function(*args, **kwargs)

    return timed


def _timed_coroutine(
    again: Callable[[], phase], function: Callable[..., Any]
) -> Callable[..., Any]:
    async def timed(*args: Any, **kwargs: Any) -> Any:
        with again():
            return await function(*args, **kwargs)

    return timed


def _timed_generator(
    again: Callable[[], phase], function: Callable[..., Any]
) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        with again():
            return (yield from function(*args, **kwargs))

    return timed
