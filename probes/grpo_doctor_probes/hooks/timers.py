"""Spans from a framework's own timer, which begins and ends its labels by name."""

from __future__ import annotations

from collections.abc import Callable

from grpo_doctor_probes.hooks.spans import HookedSpan


class TimerSpans:
    """The open labels of one timer. Labels that `span_of` has no span for are passed over."""

    def __init__(self, span_of: Callable[[str], str | None]) -> None:
        self._span_of = span_of
        self._open: dict[str, HookedSpan] = {}

    def begin(self, label: str) -> None:
        """Open the label's span, unless it is open already."""
        name = self._span_of(label)
        if name is not None and label not in self._open:
            span = self._open[label] = HookedSpan(name)
            span.__enter__()

    def end(self, label: str) -> None:
        """Close the label's span, if it is open."""
        span = self._open.pop(label, None)
        if span is not None:
            span.__exit__(None, None, None)
