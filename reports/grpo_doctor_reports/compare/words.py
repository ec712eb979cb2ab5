"""What page and terminal say of a comparison, in the same words."""

from __future__ import annotations

import shlex

from grpo_doctor_reports import formatting
from grpo_doctor_reports.compare.ratio import change_ratio
from grpo_doctor_reports.run_facts import any_value
from grpo_doctor_reports.schema.compare import (
    Change,
    ComparisonDocument,
    FixResult,
    MetricChange,
    SettingChange,
    Side,
)

_CURVES_NAMED = 6


def change(changed: Change) -> str:
    """Return the change with its interval, a large one as a ratio; or why there is none."""
    if changed.change_pct is None:
        return changed.note or "unknown"
    ratio = change_ratio(changed.change_pct, changed.low_pct, changed.high_pct)
    if ratio is not None:
        return (
            f"{ratio.mid} as {'fast' if ratio.is_faster else 'long'} ({ratio.low} to {ratio.high})"
        )
    shown = formatting.signed_percent(changed.change_pct)
    if changed.low_pct is None or changed.high_pct is None:
        return f"{shown} ({changed.note or 'no interval'})"
    low, high = map(formatting.signed_percent, (changed.low_pct, changed.high_pct))
    return f"{shown} ({low} to {high})"


def names(comparison: ComparisonDocument) -> list[str]:
    """Return what the runs are called: by their files, else by their ids, if those differ."""
    sides = (comparison.before, comparison.after)
    for pair in ([run.source for run in sides], [run.id for run in sides]):
        if all(pair) and pair[0] != pair[1]:
            return pair
    return ["before", "after"]


def side(run: Side) -> str:
    """Return the facts of a run in one line."""
    steps = f"{formatting.count(run.steps, 'step')} of {run.steps_total}"
    framework = f"{run.framework} {run.framework_version or ''}".strip()
    facts = [framework, formatting.count(run.world_size, "rank"), run.gpus, steps]
    return " · ".join(fact for fact in facts if fact)


def command(run: Side) -> str:
    """Return the command of a run as a shell takes it."""
    return shlex.join(run.command)


def setting_value(value: object) -> str:
    """Return the value of a setting as text, `not set` for none."""
    return any_value(value) or "not set"


def setting_change(setting: SettingChange) -> str:
    """Return what a setting was and is: `train.beta: 0.04 → not set`."""
    return f"{setting.name}: {setting_value(setting.before)} → {setting_value(setting.after)}"


def not_predicted(fixes: list[FixResult]) -> str:
    """Return why the changed settings have no prediction; empty where they have one."""
    reasons = [f.unpredicted for f in fixes if f.predicted_mid_pct is None and f.unpredicted]
    return f"What this brings was not predicted: {'; '.join(reasons)}." if reasons else ""


def predicted(fixes: list[FixResult]) -> list[FixResult]:
    """Return the changes that have a prediction to hold the measurement to."""
    return [fix for fix in fixes if fix.predicted_mid_pct is not None]


def prediction(fix: FixResult) -> str:
    """Return the prediction with its interval."""
    ends = (fix.predicted_mid_pct, fix.predicted_low_pct, fix.predicted_high_pct)
    mid, low, high = map(formatting.signed_percent, ends)
    return f"{mid} ({low} to {high})"


def outcome(fix: FixResult) -> str:
    """Return whether the prediction held; where that can't be said, why."""
    if fix.inside is None:
        return f"could not be judged{f': {fix.note}' if fix.note else ''}"
    return "as predicted" if fix.inside else "not as predicted"


def metrics_sentence(comparison: ComparisonDocument) -> str:
    """Return what became of the training metrics, in one sentence."""
    every = comparison.metrics
    if not every:
        return "No training metric is in both runs."
    parted = [metric for metric in every if metric.state == "parted"]
    if not parted:
        identical = sum(metric.state == "identical" for metric in every)
        if identical == len(every):
            return f"All {len(every)} training metrics are bit-identical over the common steps."
        short = sum(metric.state == "not enough evidence" for metric in every)
        if short == len(every):
            return f"Too few steps in common to say where training metrics part ({short} compared)."
        compared = f"{len(every) - short} compared" + (f", {short} too short" if short else "")
        return f"No training metric parts by more than its own noise ({compared})."
    names = formatting.listed([metric.name for metric in parted], _CURVES_NAMED)
    return f"{len(parted)} of {len(every)} training metrics part: {names}."


def metric_order(metrics: list[MetricChange]) -> list[MetricChange]:
    """Return the metrics worth a row: those that part, then the others."""
    return sorted(metrics, key=lambda metric: metric.state != "parted")
