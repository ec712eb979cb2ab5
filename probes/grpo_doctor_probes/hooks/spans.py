"""Spans and steps of functions that were written without this tool.

Frameworks subclass each other and call each other's methods, so that a phase may begin within
itself: only the outermost is recorded. What runs within an evaluation or a checkpoint is part of
it, whatever it would be elsewhere. A span may also begin in one call and end in another, or be
shared by several calls.
"""

from __future__ import annotations

from _thread import _local
from collections.abc import Callable, Iterator
from time import monotonic_ns
from typing import Any

from grpo_doctor_probes.record import layout, recorder
from grpo_doctor_probes.record.spans import phase, step

_OPAQUE = ("eval", "checkpoint")


class _Open(_local):
    """The names of hooked spans that are open in this thread, outermost first."""

    def __init__(self) -> None:
        self.names: list[str] = []


_OPEN = _Open()


def inside(name: str) -> bool:
    """Return whether a hooked span of that name is open in this thread."""
    return name in _OPEN.names


class HookedSpan:
    """A span of a framework's function; nothing where it is part of what is open already."""

    __slots__ = ("_name", "_span", "_unless")

    def __init__(self, name: str, unless: tuple[str, ...] = ()) -> None:
        self._name = name
        self._unless = unless
        self._span: phase | None = None

    def __enter__(self) -> None:
        names = _OPEN.names
        for open_name in names:
            if open_name == self._name or open_name in _OPAQUE or open_name in self._unless:
                return
        self._span = phase(self._name)
        self._span.__enter__()
        names.append(self._name)

    def __exit__(self, *error: Any) -> None:
        if self._span is None:
            return
        self._span.__exit__(*error)
        names = _OPEN.names
        for index in range(len(names) - 1, -1, -1):  # coroutines end in any order
            if names[index] == self._name:
                del names[index]
                return


def write_ended(active: recorder.Recorder, seconds: float, *names: str) -> None:
    """Spans of what ends now, where a framework itself says how long it took."""
    now_ns = monotonic_ns()
    begun_ns = now_ns - round(1e9 * seconds)
    for name in names:
        active.write(layout.SPAN, active.name_id(name), begun_ns, now_ns, 0.0)


class StepMarks:
    """The steps of a loop whose beginnings alone are seen: each ends where the next begins."""

    def __init__(self) -> None:
        self._open: step | None = None

    def begin(self, number: int) -> None:
        """End the step before and begin this one."""
        self.end()
        try:
            self._open = step(number)
            self._open.__enter__()
        except Exception:  # noqa: BLE001 - a guest never raises into its host
            recorder.note_error()

    def end(self) -> None:
        """End the open step, if there is one."""
        opened, self._open = self._open, None
        if opened is not None:
            opened.__exit__(None, None, None)

    def drop(self) -> None:
        """Forget the open step: nothing came of it."""
        opened, self._open = self._open, None
        level = getattr(opened, "_level", None)
        if level is not None:
            level.thread.leave(level)


STEPS = StepMarks()


class LongSpan:
    """A span with a beginning and an end of its own. To begin it twice is to begin it once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._span: HookedSpan | None = None

    def begin(self) -> None:
        """Open it, unless it is open."""
        if self._span is None:
            self._span = HookedSpan(self._name)
            self._span.__enter__()

    def end(self, error: tuple[Any, ...] = (None, None, None)) -> bool:
        """Close it, with what it raised; return whether it was open."""
        span, self._span = self._span, None
        if span is not None:
            span.__exit__(*error)
        return span is not None


class TimerSpans:
    """The open labels of a framework's own timer, which begins and ends them by name. Labels that
    `span_of` has no span for are passed over."""

    def __init__(self, span_of: Callable[[str], str | None]) -> None:
        self._span_of = span_of
        self._open: dict[str, LongSpan] = {}

    def begin(self, label: str) -> None:
        """Open the label's span, unless it is open already."""
        name = self._span_of(label)
        if name is not None:
            self._open.setdefault(label, LongSpan(name)).begin()

    def end(self, label: str) -> None:
        """Close the label's span, if it is open."""
        if label in self._open:
            self._open[label].end()


class _Running(_local):
    """How many calls run in this thread, and their common span, by name."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.spans: dict[str, LongSpan] = {}


_RUNNING = _Running()


def timed_iterator(iterator: Iterator[Any]) -> Iterator[Any]:
    """Yield the batches of a data loader, each fetched within a span."""
    while True:
        with HookedSpan("dataload"):
            try:
                batch = next(iterator)
            except StopIteration:
                return
        yield batch


class SharedSpan:
    """A span that all calls of this name in a thread share, as an event loop runs them at once.

    It is open from the first that begins to the last that ends; a span for each would be hundreds
    that lie across each other.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        _RUNNING.counts[self._name] = _RUNNING.counts.get(self._name, 0) + 1
        _RUNNING.spans.setdefault(self._name, LongSpan(self._name)).begin()

    def __exit__(self, *error: Any) -> None:
        count = _RUNNING.counts[self._name] = max(0, _RUNNING.counts.get(self._name, 0) - 1)
        if not count and self._name in _RUNNING.spans:
            _RUNNING.spans[self._name].end(error)
