"""Every step over time, and what its phases took next to the median step."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from grpo_doctor_reports import formatting
from grpo_doctor_reports.charts.chart import Chart, known_mean, rounded
from grpo_doctor_reports.charts.lanes import buckets_data, phases_of_buckets, step_stacks
from grpo_doctor_reports.packing import NumberPool
from grpo_doctor_reports.palette import color_of
from grpo_doctor_reports.schema.views import Heatmap, StepEntry, Views

_STEADY: Final = "steady"
_WORST: Final = 100  # as many worst steps can be stepped through
_RANKS_NAMED: Final = 8


def steps_chart(views: Views, pool: NumberPool) -> Chart | None:
    """Return the chart of all steps, None where no step is known.

    Bars are drawn from buckets of steps, `buckets`; the other members are single steps, for
    stepping through the worst.
    """
    steps = views.steps
    if not steps:
        return None
    steady = [step for step in steps if step.kind == _STEADY] or steps
    middle = views.step_buckets.median_seconds or 0.0
    kinds = sorted({step.kind for step in steps})
    ranked = sorted(range(len(steps)), key=lambda at: -_length(steps[at]))
    worst = [at for at in ranked if steps[at] in steady][:_WORST]
    return Chart(
        data={
            "number": pool.add_integers([step.number for step in steps]),
            "start": pool.add_times([s.start_s for s in steps], steps[-1].end_s),
            "end": pool.add_times([s.end_s for s in steps], steps[-1].end_s),
            "seconds": pool.add([_length(step) for step in steps]),
            "slowest": pool.add_integers(
                [-1 if s.slowest_rank is None else s.slowest_rank for s in steps]
            ),
            "kind": pool.add_integers([kinds.index(step.kind) for step in steps]),
            "kinds": kinds,
            "worst": worst,
            "median": rounded(middle),
            "phases": _phases(views, steps, pool),
            "buckets": _buckets(views, pool),
        },
        summary=_summary(views, steady, middle),
        note=_note(views),
    )


def _length(step: StepEntry) -> float:
    return step.end_s - step.start_s if step.seconds is None else step.seconds


def slowest_ranks(heatmap: Heatmap) -> list[int]:
    """Return the ranks that work longest by themselves, an eighth of all, the longest first."""
    means = zip(heatmap.means.own_seconds, heatmap.means.ranks, strict=False)
    works = [(own, rank) for own, rank in means if own is not None]
    count = min(_RANKS_NAMED, max(1, len(works) // 8))
    return [rank for _, rank in sorted(works, reverse=True)[:count]]


def _phases(views: Views, steps: list[StepEntry], pool: NumberPool) -> list[dict[str, Any]]:
    """Each phase of the single steps, beside its median over the steady ones."""
    heatmap, medians = views.heatmap, views.step_buckets.median_phase_seconds
    phases = []
    for phase, rows in heatmap.phase_seconds.items():
        columns = (known_mean([row[at] for row in rows]) for at in range(len(heatmap.steps)))
        means = dict(zip(heatmap.steps, columns, strict=True))
        if phase in medians:
            phases.append(
                {
                    "name": phase,
                    "color": color_of(phase),
                    "median": rounded(medians[phase]),
                    "v": pool.add([means.get(step.number) for step in steps]),
                }
            )
    return phases


def _buckets(views: Views, pool: NumberPool) -> dict[str, Any]:
    steps = views.step_buckets
    names = phases_of_buckets(steps, views.timeline.ranks)
    return {
        **buckets_data(steps, views.timeline.end_s, pool),
        "names": [{"name": name, "color": color_of(name)} for name in names],
        "stacks": step_stacks(steps, names, pool),
        "seconds": pool.add(steps.seconds),
        "worst": pool.add(steps.worst_seconds),
        "worstStep": pool.add_integers(steps.worst_step),
        "worstRank": pool.add_integers([-1 if rank is None else rank for rank in steps.worst_rank]),
    }


def _summary(views: Views, steady: list[StepEntry], middle: float) -> str:
    worst = max(steady, key=_length)
    kinds: Counter[str] = Counter()
    for kind, steps in zip(views.step_buckets.kind, views.step_buckets.steps, strict=True):
        kinds[kind] += steps
    counted = kinds.pop(_STEADY, 0)
    many = counted or len(steady)
    apart = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()) if counted)
    change = formatting.signed_percent(100 * (_length(worst) / middle - 1)) if middle > 0 else ""
    longer = f" ({change} vs. the median of {formatting.seconds(middle)})" if change else ""
    by = "" if worst.slowest_rank is None else f", on rank {worst.slowest_rank}"
    return (
        f"Slowest of {formatting.count(many, 'step')}: step {worst.number}, "
        f"{formatting.seconds(_length(worst))}{longer}{by}."
        + (f" Excludes {apart}." if apart else "")
    )


def _note(views: Views) -> str:
    widest = max(views.step_buckets.steps, default=1)
    closest = (
        "Zoom in for one bar per step."
        if widest == 1
        else f"Even zoomed in, up to {widest} steps share one."
    )
    return (
        "When zoomed out, each bar averages several steps and the tick marks the slowest. "
        f"{closest}"
    )
