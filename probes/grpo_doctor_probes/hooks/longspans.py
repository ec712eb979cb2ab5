"""Spans that begin in one call and end in another, or that several calls share."""

from __future__ import annotations

from _thread import _local
from collections.abc import Callable
from typing import Any

from grpo_doctor_probes.hooks.spans import HookedSpan


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
