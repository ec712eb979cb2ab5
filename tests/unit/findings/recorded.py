"""Adds to the runs of `example_runs.py` what a trainer records beside its phases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from grpo_doctor.phases import phase_of
from grpo_doctor.trace.model import Kind
from tests.build import SECOND, TraceBuilder

Value = float | Callable[[int, int], float]


def _value(value: Value, rank: int, number: int) -> float:
    return value(rank, number) if callable(value) else value


def _rows(build: TraceBuilder, kind: Kind, name: str) -> list[tuple[int, float, float, float]]:
    rows, names = build._rows, list(build._names.names)
    return [
        (rows["process"][i], rows["start_ns"][i] / SECOND, rows["end_ns"][i] / SECOND, value)
        for i, value in enumerate(rows["value"])
        if rows["kind"][i] == kind and names[rows["name"][i]] == name
    ]


def count(build: TraceBuilder, name: str, value: Value, *, ranks: Any = None) -> TraceBuilder:
    """One sample of a counter in the middle of each step; `value` may ask (rank, step)."""
    steps = _rows(build, Kind.STEP, "step")
    for rank in range(build.ranks) if ranks is None else ranks:
        mine = [(start, end, int(number)) for r, start, end, number in steps if r == rank]
        times = [(start + end) / 2 for start, end, _ in mine]
        values = [_value(value, rank, number) for _, _, number in mine]
        build.series(name, "", times, values, scope="counter", rank=rank)
    return build


def inside(
    build: TraceBuilder,
    name: str,
    value: Value,
    *,
    begin: Value = 0.0,
    times: int = 1,
    thread: int = 0,
) -> TraceBuilder:
    """Spans of this name in each span of its phase: `value` seconds together, none for 0."""
    phase = name.partition("/")[0]
    numbers: dict[int, int] = {}
    for rank, start, _, _ in _rows(build, Kind.SPAN, phase):
        number = numbers[rank] = numbers.get(rank, -1) + 1
        seconds = _value(value, rank, number)
        now = start + _value(begin, rank, number)
        for _ in range(times if seconds > 0 else 0):
            build.span(rank, name, now, now + seconds / times, depth=2, thread=thread)
            now += seconds / times
    return build


def memory(build: TraceBuilder, gib: dict[str, float], otherwise: float = 20.0) -> TraceBuilder:
    """GPUs of 80 GiB that hold `gib` in each span of some phases, and less in the others."""
    phases = {name for name in build._names.names if phase_of(name) == name}
    every = [(*row[:2], phase) for phase in phases for row in _rows(build, Kind.SPAN, phase)]
    for rank in range(build.ranks):
        mine = sorted((start, phase) for r, start, phase in every if r == rank)
        values = [gib.get(phase, otherwise) * 2**30 for _, phase in mine]
        build.gpu(f"GPU-{rank}", index=rank)
        build.series(
            "gpu.memory_used", "bytes", [s for s, _ in mine], values, scope="gpu", gpu=f"GPU-{rank}"
        )
    return build


def knob(name: str, value: Any) -> dict[str, Any]:
    """One setting, to be passed on by `**`."""
    return {name: value}
