"""Spans and steps of functions that were written without this tool.

Frameworks subclass each other and call each other's methods, so that a phase may begin within
itself: only the outermost is recorded. What runs within an evaluation or a checkpoint is part of
it, whatever it would be elsewhere.
"""

from __future__ import annotations

from _thread import _local
from time import monotonic_ns
from typing import Any

from grpo_doctor_probes.hooks.sums import SUMS
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


def open_spans() -> list[str]:
    """Return the names of the hooked spans that are open in this thread, outermost first."""
    return _OPEN.names


class HookedSpan:
    """A span of a framework's function; nothing where it is part of what is open already."""

    __slots__ = ("_direction", "_name", "_span", "_unless")

    def __init__(
        self, name: str, unless: tuple[str, ...] = (), direction: str | None = None
    ) -> None:
        self._name = name
        self._unless = unless
        self._direction = direction
        self._span: phase | None = None

    def __enter__(self) -> None:
        names = _OPEN.names
        for open_name in names:
            if open_name == self._name or open_name in _OPAQUE or open_name in self._unless:
                return
        direction = self._direction
        self._span = phase(self._name, direction=direction) if direction else phase(self._name)
        self._span.__enter__()
        if SUMS.on:
            SUMS.charge(names)
        names.append(self._name)

    def __exit__(self, *error: Any) -> None:
        if self._span is None:
            return
        self._span.__exit__(*error)
        names = _OPEN.names
        if SUMS.on:
            SUMS.charge(names)
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
            if SUMS.on:
                SUMS.begin_step()
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
