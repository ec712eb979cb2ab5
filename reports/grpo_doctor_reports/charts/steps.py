"""Every step over time, and what its phases took next to the median step."""

from __future__ import annotations

from collections import Counter
from statistics import fmean, median
from typing import Any, Final

from grpo_doctor_reports import formatting
from grpo_doctor_reports.charts.chart import Chart
from grpo_doctor_reports.model import Heatmap, Report
from grpo_doctor_reports.packing import NumberPool
from grpo_doctor_reports.palette import color_of
from grpo_doctor_reports.schema.part import Numbers
from grpo_doctor_reports.time_model import StepTime

_STEADY: Final = "steady"
_WORST: Final = 100  # as many worst steps can be stepped through
_RANKS_NAMED: Final = 8


def steps_chart(report: Report, pool: NumberPool) -> Chart | None:
    """Return the chart of all steps, None where no step is known.

    Without `views.steps` the heatmap's steps stand in: their times are unknown, so that `start`
    and `end` are null and the axis counts steps.
    """
    timed = bool(report.steps)
    steps = report.steps or _from_heatmap(report.heatmap)
    if not steps:
        return None
    steady = [step for step in steps if step.kind == _STEADY] or steps
    middle = median(step.seconds for step in steady)
    kinds = sorted({step.kind for step in steps})
    ranked = sorted(range(len(steps)), key=lambda at: -steps[at].seconds)
    worst = [at for at in ranked if steps[at] in steady][:_WORST]
    return Chart(
        data={
            "number": pool.add_integers([step.number for step in steps]),
            "start": pool.add_times([s.start_s for s in steps], steps[-1].end_s) if timed else None,
            "end": pool.add_times([s.end_s for s in steps], steps[-1].end_s) if timed else None,
            "seconds": pool.add([step.seconds for step in steps]),
            "slowest": pool.add_integers(
                [-1 if s.slowest_rank is None else s.slowest_rank for s in steps]
            ),
            "kind": pool.add_integers([kinds.index(step.kind) for step in steps]),
            "kinds": kinds,
            "worst": worst,
            "median": _rounded(middle),
            "phases": _phases(report.heatmap, steps, steady, pool),
        },
        summary=_summary(steps, steady, middle),
        note="" if timed else "When the steps were is not in the document; the axis counts them.",
    )


def slowest_ranks(heatmap: Heatmap) -> list[int]:
    """Return the ranks that work longest by themselves, an eighth of all, the longest first."""
    works = []
    for at, rank in enumerate(heatmap.ranks):
        waits = heatmap.wait_s[at] if heatmap.wait_s else [None] * len(heatmap.steps)
        taken = heatmap.step_s[at] if heatmap.step_s else []
        own = [s - (w or 0.0) for s, w in zip(taken, waits, strict=False) if s is not None]
        if own:
            works.append((fmean(own), rank))
    count = min(_RANKS_NAMED, max(1, len(works) // 8))
    return [rank for _, rank in sorted(works, reverse=True)[:count]]


def _from_heatmap(heatmap: Heatmap) -> list[StepTime]:
    means = _column_means(heatmap.step_s, len(heatmap.steps))
    return [
        StepTime(number, 0.0, 0.0, seconds, _STEADY, None)
        for number, seconds in zip(heatmap.steps, means, strict=True)
        if seconds is not None
    ]


def _column_means(rows: list[Numbers], width: int) -> Numbers:
    means: Numbers = []
    for at in range(width):
        known = [value for row in rows if (value := row[at]) is not None]
        means.append(fmean(known) if known else None)
    return means


def _phases(
    heatmap: Heatmap, steps: list[StepTime], steady: list[StepTime], pool: NumberPool
) -> list[dict[str, Any]]:
    numbers = {step.number for step in steady}
    phases = []
    for phase, rows in heatmap.phases_s.items():
        means = dict(zip(heatmap.steps, _column_means(rows, len(heatmap.steps)), strict=True))
        known = [v for number, v in means.items() if v is not None and number in numbers]
        if known:
            phases.append(
                {
                    "name": phase,
                    "color": color_of(phase),
                    "median": _rounded(median(known)),
                    "v": pool.add([means.get(step.number) for step in steps]),
                }
            )
    return phases


def _summary(steps: list[StepTime], steady: list[StepTime], middle: float) -> str:
    worst = max(steady, key=lambda step: step.seconds)
    kinds = Counter(step.kind for step in steps if step.kind != _STEADY)
    apart = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
    change = formatting.signed_percent(100 * (worst.seconds / middle - 1)) if middle > 0 else ""
    longer = f", {change} against the median of {formatting.seconds(middle)}" if change else ""
    by = "" if worst.slowest_rank is None else f", rank {worst.slowest_rank} the slowest"
    return (
        f"Of {formatting.count(len(steady), 'step')}, step {worst.number} is the longest with "
        f"{formatting.seconds(worst.seconds)}{longer}{by}."
        + (f" Beside them {apart}." if apart else "")
    )


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
