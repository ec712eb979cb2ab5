"""Where the time of a step went, in words and in lanes."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from grpo_doctor_reports import formatting
from grpo_doctor_reports.accounting import steps_included, steps_left_out
from grpo_doctor_reports.model import Report
from grpo_doctor_reports.schema.views import CollectiveEntry, WaterfallEntry
from grpo_doctor_reports.time_model import CriticalPath, Segment

_LANES: Final = 12
_NUMBERS_SHOWN: Final = 90  # characters; a run may have thousands of checkpoint steps


def lanes_of(path: CriticalPath) -> list[tuple[str, list[Segment]]]:
    """Return the path's pieces by lane, the lanes by when the path first reaches them."""
    lanes: dict[str, list[Segment]] = defaultdict(list)
    for segment in path.segments:
        lanes[segment.lane].append(segment)
    return list(lanes.items())[:_LANES]


def path_sentence(path: CriticalPath) -> str:
    """Return what the path spends most on, by phase, and how much of it is not work."""
    by_phase: dict[str, float] = defaultdict(float)
    by_kind: dict[str, float] = defaultdict(float)
    for segment in path.segments:
        by_phase[segment.phase] += segment.seconds
        by_kind[segment.kind] += segment.seconds
    longest = sorted(by_phase.items(), key=lambda item: -item[1])[:4]
    phases = ", ".join(f"{phase} {formatting.seconds(seconds)}" for phase, seconds in longest)
    losses = [
        f"{kind} {formatting.seconds(by_kind[kind])}" for kind in ("transfer", "idle", "wait")
        if by_kind.get(kind)
    ]  # fmt: skip
    lanes = len({segment.lane for segment in path.segments})
    through = f", through {formatting.count(lanes, 'rank or engine', 'ranks and engines')}"
    return f"Critical path: {phases}{through}{'; of that ' + ', '.join(losses) if losses else ''}."


def accounting_sentence(shares: list[tuple[str, float]]) -> str:
    """Return the shares in words."""
    return ", ".join(f"{kind} {formatting.share(share)}" for kind, share in shares)


def time_notes(report: Report) -> list[tuple[str, str]]:
    """Return what bears on how far the numbers can be trusted: (label, sentence)."""
    summary, clock, steady = report.summary, report.run.clock, report.summary.steady
    notes = []
    if summary.gpu_truly_busy_pct is not None:
        by = f", judged by {summary.gpu_busy_by.replace('_', ' ')}" if summary.gpu_busy_by else ""
        against = f" The driver reports {formatting.percent(summary.gpu_busy_pct)}."
        notes.append((
            "GPU", f"Effective utilization {formatting.percent(summary.gpu_truly_busy_pct)}{by}."
            + (against if summary.gpu_busy_pct is not None else ""),
        ))  # fmt: skip
    if steady.first_step is not None:
        reason = f": {steady.reason}" if steady.reason else ""
        notes.append(("Steady", f"from step {steady.first_step}{reason}"))
    if left_out := steps_left_out(summary):
        notes.append(("Excluded", f"from all means: {_steps_named(left_out)}."))
    if included := steps_included(summary):
        notes.append(("Included", f"in all means: {_steps_named(included)}."))
    if clock is not None:
        notes.append(("Clocks", clock_sentence(report)))
    return notes


def _steps_named(kinds: list[tuple[str, list[int]]]) -> str:
    """Return `warm-up step 1, checkpoint steps 10, 20`."""
    return ", ".join(
        f"{why} step{'s' * (len(steps) > 1)} {cut(formatting.int_ranges(steps))}"
        for why, steps in kinds
    )


def seldom_words(bar: WaterfallEntry, steps: int) -> str:
    """Return why a phase's mean may lie outside its p10 to p90: few steps have it, or long ones."""
    if bar.steps is not None and 0 < bar.steps < steps:
        return f"in {bar.steps} of {steps} steps"
    low, high = bar.p10_s, bar.p90_s
    if low is None or high is None or low <= bar.seconds <= high:
        return ""
    return f"mean {'above p90' if bar.seconds > high else 'below p10'}: single steps differ"


def clock_sentence(report: Report) -> str:
    """Return how far the ranks' clocks may be apart."""
    clock = report.run.clock
    if clock is None:
        return ""
    if clock.text:
        return clock.text
    if clock.max_error_ms is None:
        return "How far the clocks of the ranks are apart is not known."
    methods = f", aligned by {', '.join(clock.methods)}" if clock.methods else ""
    within = formatting.quantity(clock.max_error_ms, "ms")
    return f"Moments of two ranks compare within {within}{methods}."


def longest_collective(collectives: list[CollectiveEntry]) -> float:
    """Return the most seconds from a first arrival to an end: what the bars are scaled by."""
    return max((call.skew_seconds + call.transfer_seconds for call in collectives), default=0.0)


def cut(text: str) -> str:
    """Return a list of numbers short enough for one line."""
    return text if len(text) <= _NUMBERS_SHOWN else text[: _NUMBERS_SHOWN - 1] + "…"
