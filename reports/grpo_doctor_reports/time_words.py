"""Where the time of a step went, in words and in lanes."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from msgspec.structs import replace

from grpo_doctor_reports import formatting
from grpo_doctor_reports.schema import views
from grpo_doctor_reports.schema.report import PhaseEntry, ReportDocument, Summary

KINDS: Final = ("work", "wait", "transfer", "idle")
_LANES: Final = 12
_NUMBERS_SHOWN: Final = 90  # characters; a run may have thousands of checkpoint steps


def kind_shares(summary: Summary) -> list[tuple[str, float]]:
    """Return the shares (0 to 1) of the ranks' time by kind, in the order of the kinds."""
    shares = summary.accounting
    return [(kind, max(0.0, shares[kind])) for kind in KINDS if kind in shares]


def lanes_of(path: views.CriticalPath) -> list[tuple[str, list[views.PathSegment]]]:
    """Return the path's pieces by lane, from its begin, the lanes by when it first reaches them."""
    begins_s = min((segment.start_s for segment in path.segments), default=0.0)
    lanes: dict[str, list[views.PathSegment]] = defaultdict(list)
    for segment in path.segments:
        if segment.end_s > segment.start_s:
            rank = "" if segment.rank is None else str(segment.rank)
            piece = replace(
                segment,
                start_s=segment.start_s - begins_s,
                end_s=segment.end_s - begins_s,
                kind=segment.kind if segment.kind in KINDS else "work",
            )
            lanes[f"{segment.lane} {rank}".strip() or "unknown"].append(piece)
    return list(lanes.items())[:_LANES]


def path_length(path: views.CriticalPath) -> float:
    """Return the seconds of a path: of its step, or to the end of its last piece."""
    begins_s = min((segment.start_s for segment in path.segments), default=0.0)
    ends_s = max((segment.end_s for segment in path.segments), default=0.0)
    return max(path.seconds, ends_s - begins_s)


def path_sentence(path: views.CriticalPath) -> str:
    """Return what the path spends most on, by phase, and how much of it is not work."""
    by_phase: dict[str, float] = defaultdict(float)
    by_kind: dict[str, float] = defaultdict(float)
    for segment in path.segments:
        seconds = max(0.0, segment.end_s - segment.start_s)
        by_phase[segment.phase] += seconds
        by_kind[segment.kind] += seconds
    longest = sorted(by_phase.items(), key=lambda item: -item[1])[:4]
    phases = ", ".join(f"{phase} {formatting.seconds(seconds)}" for phase, seconds in longest)
    losses = [
        f"{kind} {formatting.seconds(by_kind[kind])}" for kind in ("transfer", "idle", "wait")
        if by_kind.get(kind)
    ]  # fmt: skip
    lanes = len({(segment.lane, segment.rank) for segment in path.segments})
    across = f", across {formatting.count(lanes, 'rank or engine', 'ranks and engines')}"
    return f"Critical path: {phases}{across}{'; includes ' + ', '.join(losses) if losses else ''}."


def accounting_sentence(shares: list[tuple[str, float]]) -> str:
    """Return the shares in words."""
    return ", ".join(f"{kind} {formatting.share(share)}" for kind, share in shares)


def time_notes(report: ReportDocument) -> list[tuple[str, str]]:
    """Return what bears on how far the numbers can be trusted: (label, sentence)."""
    summary, clock, steady = report.summary, report.run.clock, report.summary.steady
    notes = []
    if summary.gpu_truly_busy_pct is not None:
        by = f" (by {summary.gpu_busy_by.replace('_', ' ')})" if summary.gpu_busy_by else ""
        against = f" The GPU driver reports {formatting.percent(summary.gpu_busy_pct)}."
        notes.append((
            "GPU", f"Effective utilization {formatting.percent(summary.gpu_truly_busy_pct)}{by}."
            + (against if summary.gpu_busy_pct is not None else ""),
        ))  # fmt: skip
    if steady.first_step is not None:
        reason = f": {steady.reason}" if steady.reason else ""
        notes.append(("Steady", f"from step {steady.first_step}{reason}"))
    if left_out := _steps_named(summary.left_out):
        notes.append(("Excluded", f"from all averages: {left_out}."))
    apart = {why: steps for why, steps in summary.set_apart.items() if why != "warmup"}
    if included := _steps_named(apart):
        notes.append(("Included", f"in all averages: {included}."))
    if clock is not None:
        notes.append(("Clocks", clock_sentence(report)))
    return notes


def _steps_named(kinds: dict[str, list[int]]) -> str:
    """Return `warm-up step 1, checkpoint steps 10, 20`."""
    return ", ".join(
        f"{why} step{'s' * (len(steps) > 1)} {cut(formatting.int_ranges(steps))}"
        for why, steps in kinds.items()
        if steps
    )


def seldom_words(bar: PhaseEntry, steps: int) -> str:
    """Return why a phase's mean may lie outside its p10 to p90: few steps have it, or long ones."""
    if bar.steps is not None and 0 < bar.steps < steps:
        return f"in {bar.steps} of {steps} steps"
    low, high = bar.p10_s, bar.p90_s
    if low is None or high is None or low <= bar.seconds <= high:
        return ""
    return "mean above p90: a few long steps" if bar.seconds > high else "mean below p10"


def clock_sentence(report: ReportDocument) -> str:
    """Return the error of the ranks' clocks."""
    clock = report.run.clock
    if clock is None:
        return ""
    if clock.text:
        return clock.text
    if clock.max_error_ms is None:
        return "Clock error between ranks: unknown."
    methods = f" (aligned by {', '.join(clock.methods)})" if clock.methods else ""
    within = formatting.quantity(clock.max_error_ms, "ms")
    return f"Clock error between ranks: at most {within}{methods}."


def longest_collective(collectives: list[views.CollectiveEntry]) -> float:
    """Return the most seconds from a first arrival to an end: what the bars are scaled by."""
    return max((call.skew_seconds + call.transfer_seconds for call in collectives), default=0.0)


def cut(text: str) -> str:
    """Return a list of numbers short enough for one line."""
    return text if len(text) <= _NUMBERS_SHOWN else text[: _NUMBERS_SHOWN - 1] + "…"
