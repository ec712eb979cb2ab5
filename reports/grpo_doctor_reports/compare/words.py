"""What page and terminal say of a comparison, in the same words."""

from __future__ import annotations

import shlex

from grpo_doctor_reports import formatting
from grpo_doctor_reports.digest import framework_words
from grpo_doctor_reports.schema.compare import (
    Change,
    ComparisonDocument,
    FixResult,
    MetricChange,
    SettingChange,
    Side,
)

_CURVES_NAMED = 6
_SETTINGS_SHOWN = 8
_WITHOUT_EFFECT = "without effect"
_AS_PREDICTED = "as predicted"
# How far from the middle of the predicted interval to its end a measured change still counts as
# predicted, and from where on it is at the edge.
_NEAR, _EDGE = 0.5, 0.8
_A_MISS = 1.5


def change(changed: Change) -> str:
    """Return the change with its interval, a large one as a ratio; or why there is none."""
    if changed.change_pct is None:
        return changed.note or "unknown"
    ratio = formatting.change_ratio(changed.change_pct, changed.low_pct, changed.high_pct)
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
    ranks = formatting.count(run.world_size, "rank") if run.world_size else ""
    facts = [framework_words(run), ranks, run.gpus, steps]
    return " · ".join(fact for fact in facts if fact)


def command(run: Side) -> str:
    """Return the command of a run as a shell takes it."""
    return shlex.join(run.command)


def setting_value(value: object, origin: str = "") -> str:
    """Return the value of a setting as text, `not set` for none, `(default)` after a default."""
    if origin == _WITHOUT_EFFECT:
        return "no effect"
    return (formatting.any_value(value) or "not set") + (
        " (default)" if origin == "default" else ""
    )


def setting_change(setting: SettingChange) -> str:
    """Return what a setting was and is: `train.beta: 0.04 → not set`."""
    before = setting_value(setting.before, setting.before_from)
    return f"{setting.name}: {before} → {setting_value(setting.after, setting.after_from)}"


def shown_settings(
    settings: list[SettingChange],
) -> tuple[list[SettingChange], list[SettingChange]]:
    """Return the differences to show at once, and those to show on demand."""
    return settings[:_SETTINGS_SHOWN], settings[_SETTINGS_SHOWN:]


def not_predicted(fixes: list[FixResult]) -> str:
    """Return why the changed settings have no prediction; empty where they have one."""
    reasons = [f.unpredicted for f in fixes if f.predicted_mid_pct is None and f.unpredicted]
    return f"No prediction for this change: {'; '.join(reasons)}." if reasons else ""


def predicted(fixes: list[FixResult]) -> list[FixResult]:
    """Return the changes that have a prediction to hold the measurement to."""
    return [fix for fix in fixes if fix.predicted_mid_pct is not None]


def prediction(fix: FixResult) -> str:
    """Return the prediction with its interval."""
    ends = (fix.predicted_mid_pct, fix.predicted_low_pct, fix.predicted_high_pct)
    mid, low, high = map(formatting.signed_percent, ends)
    return f"{mid} ({low} to {high})"


def outcome(fix: FixResult) -> str:
    """Return whether the prediction held; where that is unknown, why."""
    if fix.inside is None:
        return f"not evaluated{f': {fix.note}' if fix.note else ''}"
    place = _place(fix) if fix.inside else "not as predicted"
    return place if place == _AS_PREDICTED else f"{place}{_ratio(fix)}"


def _place(fix: FixResult) -> str:
    """Where in the predicted interval the measured change lies."""
    low, mid, high = fix.predicted_low_pct, fix.predicted_mid_pct, fix.predicted_high_pct
    measured = fix.measured_pct
    if low is None or mid is None or high is None or measured is None:
        return _AS_PREDICTED
    off = measured - mid
    reach = abs((high if off > 0 else low) - mid)
    share = abs(off) / reach if reach else 0.0
    if share <= _NEAR:
        return _AS_PREDICTED
    within = "at the edge of" if share > _EDGE else "within"
    return f"{within} the predicted interval"


def _ratio(fix: FixResult) -> str:
    """How many times the predicted change was measured, where it is far from once."""
    if not fix.predicted_mid_pct or fix.measured_pct is None:
        return ""
    times = fix.measured_pct / fix.predicted_mid_pct
    is_miss = times >= _A_MISS or 0 < times <= 1 / _A_MISS
    return f", {times:.1f} times the predicted change" if is_miss else ""


def metrics_sentence(comparison: ComparisonDocument) -> str:
    """Return how the training metrics compare, in one sentence."""
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
            return f"Too few common steps to say where training metrics diverge ({short} compared)."
        compared = f"{len(every) - short} compared" + (f", {short} too short" if short else "")
        return f"No training metric diverges by more than its own noise ({compared})."
    names = formatting.listed([metric.name for metric in parted], _CURVES_NAMED)
    return f"{len(parted)} of {len(every)} training metrics diverge: {names}."


def metric_order(metrics: list[MetricChange]) -> list[MetricChange]:
    """Return the metrics worth a row: those that diverge, then the others."""
    return sorted(metrics, key=lambda metric: metric.state != "parted")
