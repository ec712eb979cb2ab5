"""The document of `compare --json`, as one HTML file that opens offline and as terminal text."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from jinja2 import Environment
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from grpo_doctor_reports import assets, formatting
from grpo_doctor_reports.console import as_text
from grpo_doctor_reports.digest import framework_words
from grpo_doctor_reports.palette import phase_class
from grpo_doctor_reports.schema import AnyDocument, compare
from grpo_doctor_reports.schema.part import Numbers
from grpo_doctor_reports.severity import severity_class

_CURVES_NAMED = 6
_SETTINGS_SHOWN = 8
_WITHOUT_EFFECT = "without effect"
_AS_PREDICTED = "as predicted"
# How far from the middle of the predicted interval to its end a measured change still counts as
# predicted, and from where on it is at the edge.
_NEAR, _EDGE = 0.5, 0.8
_A_MISS = 1.5
# Step numbers and seconds of one run.
Curve = list[tuple[float, float]]


def change(changed: compare.Change) -> str:
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


def names(comparison: compare.ComparisonDocument) -> list[str]:
    """Return what the runs are called: by their files, else by their ids, if those differ."""
    sides = (comparison.before, comparison.after)
    for pair in ([run.source for run in sides], [run.id for run in sides]):
        if all(pair) and pair[0] != pair[1]:
            return pair
    return ["before", "after"]


def side(run: compare.Side) -> str:
    """Return the facts of a run in one line."""
    steps = f"{formatting.count(run.steps, 'step')} of {run.steps_total}"
    ranks = formatting.count(run.world_size, "rank") if run.world_size else ""
    facts = [framework_words(run), ranks, run.gpus, steps]
    return " · ".join(fact for fact in facts if fact)


def command(run: compare.Side) -> str:
    """Return the command of a run as a shell takes it."""
    return shlex.join(run.command)


def setting_value(value: object, origin: str = "") -> str:
    """Return the value of a setting as text, `not set` for none, `(default)` after a default."""
    if origin == _WITHOUT_EFFECT:
        return "no effect"
    return (formatting.any_value(value) or "not set") + (
        " (default)" if origin == "default" else ""
    )


def setting_change(setting: compare.SettingChange) -> str:
    """Return what a setting was and is: `train.beta: 0.04 → not set`."""
    before = setting_value(setting.before, setting.before_from)
    return f"{setting.name}: {before} → {setting_value(setting.after, setting.after_from)}"


def shown_settings(
    settings: list[compare.SettingChange],
) -> tuple[list[compare.SettingChange], list[compare.SettingChange]]:
    """Return the differences to show at once, and those to show on demand."""
    return settings[:_SETTINGS_SHOWN], settings[_SETTINGS_SHOWN:]


def not_predicted(fixes: list[compare.FixResult]) -> str:
    """Return why the changed settings have no prediction; empty where they have one."""
    reasons = [f.unpredicted for f in fixes if f.predicted_mid_pct is None and f.unpredicted]
    return f"No prediction for this change: {'; '.join(reasons)}." if reasons else ""


def predicted(fixes: list[compare.FixResult]) -> list[compare.FixResult]:
    """Return the changes that have a prediction to hold the measurement to."""
    return [fix for fix in fixes if fix.predicted_mid_pct is not None]


def prediction(fix: compare.FixResult) -> str:
    """Return the prediction with its interval."""
    ends = (fix.predicted_mid_pct, fix.predicted_low_pct, fix.predicted_high_pct)
    mid, low, high = map(formatting.signed_percent, ends)
    return f"{mid} ({low} to {high})"


def outcome(fix: compare.FixResult) -> str:
    """Return whether the prediction held; where that is unknown, why."""
    if fix.inside is None:
        return f"not evaluated{f': {fix.note}' if fix.note else ''}"
    place = _place(fix) if fix.inside else "not as predicted"
    return place if place == _AS_PREDICTED else f"{place}{_ratio(fix)}"


def _place(fix: compare.FixResult) -> str:
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


def _ratio(fix: compare.FixResult) -> str:
    """How many times the predicted change was measured, where it is far from once."""
    if not fix.predicted_mid_pct or fix.measured_pct is None:
        return ""
    times = fix.measured_pct / fix.predicted_mid_pct
    is_miss = times >= _A_MISS or 0 < times <= 1 / _A_MISS
    return f", {times:.1f} times the predicted change" if is_miss else ""


def metrics_sentence(comparison: compare.ComparisonDocument) -> str:
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


def metric_order(metrics: list[compare.MetricChange]) -> list[compare.MetricChange]:
    """Return the metrics worth a row: those that diverge, then the others."""
    return sorted(metrics, key=lambda metric: metric.state != "parted")


WIDTH, HEIGHT = 1000, 150
_PAD = 6
_MOST_POINTS = 500


def comparison_page(document: AnyDocument) -> bytes:
    """Return the comparison as one self-contained page (UTF-8, about 50 kB, no requests).

    Args:
        document: what `compare --json` prints; every string in it is treated as hostile.
    """
    comparison = compare.read_comparison(document)
    return assets.own_page(
        _environment(),
        "compare.html.j2",
        assets.style("compare.css"),
        comparison=comparison,
        steps=steps_drawing(comparison),
        bars=phase_bars(comparison),
        size=(WIDTH, HEIGHT),
    )


@cache
def _environment() -> Environment:
    environment = assets.template_environment()
    environment.filters.update(
        compact=formatting.compact,
        number=formatting.number,
        phase_class=phase_class,
        seconds=formatting.seconds,
        severity_class=severity_class,
        signed=formatting.signed_percent,
    )
    environment.globals.update(words=sys.modules[__name__])
    return environment


@dataclass(frozen=True, slots=True)
class Steps:
    """The step times of both runs as SVG paths over `WIDTH` x `HEIGHT`, one axis for both.

    `top_s` is the value of the upper edge, `marks` are (y, seconds) of the grid.
    """

    before: str
    after: str
    top_s: float
    first: float
    last: float
    marks: list[tuple[float, float]]


def curve_of(columns: Mapping[str, Numbers]) -> Curve:
    """Return the number and the seconds of each step of which both are known."""
    pairs = zip(columns.get("step", []), columns.get("seconds", []), strict=False)
    return [(step, s) for step, s in pairs if step is not None and s is not None]


def steps_drawing(comparison: compare.ComparisonDocument) -> Steps | None:
    """Return the drawing; None where a run has fewer than two steps."""
    before, after = (curve_of(comparison.steps.get(run, {})) for run in ("before", "after"))
    if min(len(before), len(after)) < 2:
        return None
    top = _round_up(max(seconds for _, seconds in before + after))
    # Runs are laid over each other from their first step, whatever its number is.
    length = max(curve[-1][0] - curve[0][0] for curve in (before, after)) or 1.0
    first = min(before[0][0], after[0][0])
    marks = [(_y(top * part, top), top * part) for part in (0.0, 0.5, 1.0)]
    return Steps(
        before=_path(before, length, top),
        after=_path(after, length, top),
        top_s=top,
        first=first,
        last=first + length,
        marks=marks,
    )


def phase_bars(comparison: compare.ComparisonDocument) -> list[tuple[float, float]]:
    """Return the bars of each phase before and after, in percent of the longest of all."""
    longest = max((max(p.before_s, p.after_s) for p in comparison.phases), default=0.0) or 1.0
    return [
        (round(100 * p.before_s / longest, 2), round(100 * p.after_s / longest, 2))
        for p in comparison.phases
    ]


def _path(curve: Curve, length: float, top: float) -> str:
    stride = max(1, math.ceil(len(curve) / _MOST_POINTS))
    points = [
        f"{_PAD + (WIDTH - 2 * _PAD) * (step - curve[0][0]) / length:.1f} {_y(value, top):.1f}"
        for step, value in curve[::stride]
    ]
    return "M" + " L".join(points)


def _y(value: float, top: float) -> float:
    return round(HEIGHT - _PAD - (HEIGHT - 2 * _PAD) * max(0.0, value) / top, 1)


def _round_up(value: float) -> float:
    """Return the next 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return next(unit * step for step in (1, 2, 5, 10) if value <= unit * step * (1 + 1e-9))


_NARROWEST: Final = 60
_WIDEST: Final = 110
_STYLES: Final = {"faster": "green", "slower": "red", "not enough evidence": "yellow"}
_STATES: Final = {"gone": "green", "new": "red"}


def comparison_text(document: AnyDocument, width: int, color: bool) -> str:
    """Return the comparison as text that ends with a newline.

    Args:
        document: what `compare --json` prints.
        width: columns to use; held between 60 and 110.
        color: whether to use ANSI colors; without it no escape sequence is written.
    """
    comparison = compare.read_comparison(document)
    return as_text(
        lambda _: _lines(comparison),
        width=max(_NARROWEST, min(_WIDEST, width)),
        colors="standard" if color else None,
    )


def _lines(comparison: compare.ComparisonDocument) -> Iterator[RenderableType]:
    yield Text(comparison.verdict, style="bold")
    for caution in comparison.cautions:
        yield Text(f"  note: {caution}", style="yellow")
    yield from _settings(comparison)
    yield Text("")
    yield _totals(comparison)
    yield from _predictions(comparison)
    if comparison.phases:
        yield Text("")
        yield _phases(comparison)
    yield Text(f"\n{metrics_sentence(comparison)}")
    yield from _findings(comparison)


def _settings(comparison: compare.ComparisonDocument) -> Iterator[RenderableType]:
    if not comparison.settings:
        yield Text("\nNo difference among the settings that both runs recorded.")
        return
    yield Text("\nChanged settings", style="bold")
    shown, more = shown_settings(comparison.settings)
    for setting in shown:
        yield _indented(setting_change(setting))
    if more:
        yield _indented(f"{len(more)} more: see --html or --json")
    if reason := not_predicted(comparison.fixes):
        yield _indented(reason)


def _totals(comparison: compare.ComparisonDocument) -> Table:
    table = _table("", "before", "after", "change (95% interval)")
    rows = (("step", comparison.step_time), ("per 1,000 tokens", comparison.per_token))
    for name, changed in rows:
        style = _STYLES.get(changed.verdict, "")
        table.add_row(
            name, _s(changed.before), _s(changed.after), Text(change(changed), style=style)
        )
    return table


def _predictions(comparison: compare.ComparisonDocument) -> Iterator[RenderableType]:
    for fix in predicted(comparison.fixes):
        yield Text("\nPredicted and measured", style="bold")
        yield _indented(f"predicted {prediction(fix)} step time")
        measured = formatting.signed_percent(fix.measured_pct)
        yield _indented(f"measured  {measured}: {outcome(fix)}")


def _phases(comparison: compare.ComparisonDocument) -> Table:
    table = _table("phase", "before", "after", "change (95% interval)")
    for phase in comparison.phases:
        shown = f"{'+' if phase.change_s > 0 else ''}{_s(phase.change_s)}"
        if phase.low_s is not None:
            shown += f" ({_s(phase.low_s)} to {_s(phase.high_s)})"
        style = _STYLES.get(phase.verdict, "")
        table.add_row(phase.phase, _s(phase.before_s), _s(phase.after_s), Text(shown, style=style))
    return table


def _findings(comparison: compare.ComparisonDocument) -> Iterator[RenderableType]:
    if not comparison.findings:
        return
    yield Text("\nFindings", style="bold")
    width = max(6, *(len(finding.state) + 2 for finding in comparison.findings))
    for finding in comparison.findings:
        line = Text(f"{finding.state:<{width}}", style=_STATES.get(finding.state, "dim"))
        yield Padding(line.append(f"{finding.id} {finding.title}", style="default"), (0, 0, 0, 2))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number in (1, 2) else "left")
    return table


def _indented(text: str) -> Padding:
    return Padding(Text(text), (0, 0, 0, 2))


def _s(value: float | None) -> str:
    return formatting.seconds(value)
