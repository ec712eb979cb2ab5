"""Where the time of a step went, as types: accounting, steps, critical path."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Accounting:
    """Shares (0 to 1) of the ranks' time by kind, the steps that no mean holds (`left_out`), and
    those of a kind of their own that are in all means (`included`).

    Both are (why, step numbers), for example ("checkpoint", [25, 50]).
    """

    shares: list[tuple[str, float]]
    steady_from: int | None
    steady_reason: str
    left_out: list[tuple[str, list[int]]]
    included: list[tuple[str, list[int]]]


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
