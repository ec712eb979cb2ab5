"""Where the time of a step went, as types: steps, critical paths."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step over all ranks; start and end in seconds since the trace began."""

    number: int
    start_s: float
    end_s: float
    seconds: float
    kind: str
    slowest_rank: int | None


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a critical path, in seconds since its step began."""

    lane: str
    phase: str
    name: str
    start_s: float
    seconds: float
    kind: str


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """What a step's end waited for, from its begin to its end; `name` is median or worst."""

    name: str
    step: int
    seconds: float
    segments: list[Segment]
    left_out: int
