"""Spans of functions that an event loop runs several times at once: engines, rewards over HTTP.

One span is open from the first of them that begins to the last that ends; a span for each would be
hundreds that lie across each other in one thread.
"""

from __future__ import annotations

from _thread import _local
from typing import Any

from grpo_doctor_probes.hooks.spans import HookedSpan


class _Running(_local):
    """How many run in this thread, and their common span, by name."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.spans: dict[str, HookedSpan] = {}


_RUNNING = _Running()


class SharedSpan:
    """A span that all calls of this name in a thread share."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        count = _RUNNING.counts.get(self._name, 0)
        _RUNNING.counts[self._name] = count + 1
        if not count:
            span = _RUNNING.spans[self._name] = HookedSpan(self._name)
            span.__enter__()

    def __exit__(self, *error: Any) -> None:
        count = _RUNNING.counts.get(self._name, 0) - 1
        _RUNNING.counts[self._name] = max(0, count)
        if not count:
            _RUNNING.spans.pop(self._name).__exit__(*error)
