"""What page and terminal say of a comparison, in the same words."""

from __future__ import annotations

from grpo_doctor_reports import formatting
from grpo_doctor_reports.compare.model import Comparison, FixResult, Side
from grpo_doctor_reports.schema.compare import Change, MetricChange

_CURVES_NAMED = 6


def change(one: Change) -> str:
    """Return the change with its interval, or why there is none."""
    if one.change_pct is None:
        return one.note or "unknown"
    shown = formatting.signed_percent(one.change_pct)
    if one.low_pct is None or one.high_pct is None:
        return f"{shown} ({one.note or 'no interval'})"
    low, high = map(formatting.signed_percent, (one.low_pct, one.high_pct))
    return f"{shown} ({low} to {high})"


def side(one: Side) -> str:
    """Return the facts of a run in one line."""
    steps = f"{formatting.count(one.steps, 'step')} of {one.steps_total}"
    facts = [one.framework, formatting.count(one.world_size, "rank"), one.gpus, steps]
    return " · ".join(fact for fact in facts if fact)


def prediction(fix: FixResult) -> str:
    """Return the prediction with its interval, or why there is none."""
    if fix.mid_pct is None:
        return f"nothing ({fix.unpredicted})" if fix.unpredicted else "nothing"
    mid, low, high = map(formatting.signed_percent, (fix.mid_pct, fix.low_pct, fix.high_pct))
    return f"{mid} ({low} to {high})"


def held(fix: FixResult) -> str:
    """Return whether the prediction held; where that can't be said, why."""
    if fix.inside is None:
        why = f": {fix.note}" if fix.note and fix.mid_pct is not None else ""
        return f"could not be judged{why}"
    return "as predicted" if fix.inside else "not as predicted"


def metrics_sentence(comparison: Comparison) -> str:
    """Return what became of the training metrics, in one sentence."""
    every = comparison.metrics
    if not every:
        return "No training metric is in both runs."
    parted = [metric for metric in every if metric.state == "parted"]
    if not parted:
        identical = sum(metric.state == "identical" for metric in every)
        if identical == len(every):
            return f"All {len(every)} training metrics are equal to the last bit."
        short = sum(metric.state == "not enough evidence" for metric in every)
        if short == len(every):
            return f"Too few steps in common to say where training metrics part ({short} compared)."
        compared = f"{len(every) - short} compared" + (f", {short} too short" if short else "")
        return f"No training metric parts by more than its own noise ({compared})."
    named = ", ".join(metric.name for metric in parted[:_CURVES_NAMED])
    more = len(parted) - _CURVES_NAMED
    return f"{len(parted)} of {len(every)} training metrics part: {named}" + (
        f" and {more} more." if more > 0 else "."
    )


def metric_order(metrics: list[MetricChange]) -> list[MetricChange]:
    """Return the metrics worth a row: those that part, then the others."""
    return sorted(metrics, key=lambda metric: metric.state != "parted")
