"""Read where the time of a step went: accounting, steps, critical paths, collectives, clocks."""

from __future__ import annotations

from typing import Final, TypeVar

from msgspec.structs import replace

from grpo_doctor_reports.schema.report import PhaseEntry, Summary
from grpo_doctor_reports.schema.views import (
    CollectiveEntry,
    PathSegment,
    StepEntry,
    Views,
    WaterfallEntry,
)
from grpo_doctor_reports.schema.views import CriticalPath as PathPart
from grpo_doctor_reports.time_model import CriticalPath, Segment, StepTime

KINDS: Final = ("work", "wait", "transfer", "idle")
_STEPS: Final = 1_000
_SEGMENTS: Final = 400  # a path of more pieces than this is not read piece by piece
_NUMBERS: Final = 10_000

Phase = TypeVar("Phase", PhaseEntry, WaterfallEntry)


def with_bounded_kinds(phase: Phase) -> Phase:
    """Return a phase whose kinds add up to its seconds; what no kind names is work."""
    total = work = max(0.0, phase.seconds)
    kinds = []
    for seconds in (phase.wait_seconds, phase.transfer_seconds, phase.idle_seconds):
        kinds.append(min(work, max(0.0, seconds)))
        work -= kinds[-1]
    wait, transfer, idle = kinds
    return replace(
        phase,
        seconds=total,
        work_seconds=work,
        wait_seconds=wait,
        transfer_seconds=transfer,
        idle_seconds=idle,
    )


def kind_shares(summary: Summary) -> list[tuple[str, float]]:
    """Return the shares (0 to 1) of the ranks' time by kind, in the order of the kinds."""
    shares = summary.accounting
    return [(kind, max(0.0, shares[kind])) for kind in KINDS if kind in shares]


def steps_left_out(summary: Summary) -> list[tuple[str, list[int]]]:
    """Return the steps that no mean holds, as ("warm-up", [1, 2])."""
    return _numbered(summary.left_out or {"warm-up": summary.set_apart.get("warmup", [])})


def steps_included(summary: Summary) -> list[tuple[str, list[int]]]:
    """Return the steps of a kind of their own that are in all means, as ("checkpoint", [25])."""
    apart = {why: steps for why, steps in summary.set_apart.items() if why != "warmup"}
    return _numbered(apart)


def _numbered(steps: dict[str, list[int]]) -> list[tuple[str, list[int]]]:
    return [(why, numbers[:_NUMBERS]) for why, numbers in steps.items() if numbers]


def read_steps(entries: list[StepEntry]) -> list[StepTime]:
    """Return the steps by the time at which they begin; one without times is left out."""
    steps = [step for entry in entries if (step := _read_step(entry)) is not None]
    return sorted(steps, key=lambda step: (step.start_s, step.number))[:_STEPS]


def _read_step(entry: StepEntry) -> StepTime | None:
    start, end = entry.start_s, entry.end_s
    if start is None or end is None or end < start:
        return None
    return StepTime(
        number=entry.number,
        start_s=start,
        end_s=end,
        seconds=end - start if entry.seconds is None else max(0.0, entry.seconds),
        kind=entry.kind or "steady",
        slowest_rank=entry.slowest_rank,
    )


def read_paths(views: Views) -> list[CriticalPath]:
    """Return the critical paths that there are: of the median step, then of the worst."""
    parts = (("median", views.critical_path), ("worst", views.critical_path_worst))
    paths = [_read_path(name, part) for name, part in parts if part is not None]
    return [path for path in paths if path.segments]


def _read_path(name: str, part: PathPart) -> CriticalPath:
    starts = [segment.start_s for segment in part.segments if segment.start_s is not None]
    begins = min(starts, default=0.0)
    segments = [_read_segment(segment, begins) for segment in part.segments[:_SEGMENTS]]
    end = max((segment.start_s + segment.seconds for segment in segments), default=0.0)
    return CriticalPath(
        name=name,
        step=part.step,
        seconds=max(part.seconds, end),
        segments=[segment for segment in segments if segment.seconds > 0],
        left_out=max(0, len(part.segments) - _SEGMENTS),
    )


def _read_segment(part: PathSegment, begins_s: float) -> Segment:
    start = max(0.0, (part.start_s or 0.0) - begins_s)
    end = max(start, (part.end_s or 0.0) - begins_s)
    lane = f"{part.lane} {part.rank}".strip() if part.rank is not None else part.lane
    return Segment(
        lane=lane or "unknown",
        phase=part.phase,
        name=part.name,
        start_s=start,
        seconds=end - start,
        kind=part.kind if part.kind in KINDS else "work",
    )


def read_collectives(entries: list[CollectiveEntry]) -> list[CollectiveEntry]:
    """Return the collectives, the longest first."""
    collectives = [
        replace(
            entry,
            seconds=max(0.0, entry.seconds),
            skew_seconds=max(0.0, entry.skew_seconds),
            transfer_seconds=max(0.0, entry.transfer_seconds),
        )
        for entry in entries
    ]
    return sorted(collectives, key=lambda collective: -collective.seconds)
