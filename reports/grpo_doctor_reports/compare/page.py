"""The comparison as one HTML file that opens offline."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from jinja2 import Environment

from grpo_doctor_reports import assets, formatting
from grpo_doctor_reports.compare import words
from grpo_doctor_reports.palette import phase_class
from grpo_doctor_reports.schema import AnyDocument
from grpo_doctor_reports.schema.compare import ComparisonDocument, read_comparison
from grpo_doctor_reports.schema.part import Numbers
from grpo_doctor_reports.severity import severity_class

WIDTH, HEIGHT = 1000, 150
_PAD = 6
_MOST_POINTS = 500


def comparison_page(document: AnyDocument) -> bytes:
    """Return the comparison as one self-contained page (UTF-8, about 50 kB, no requests).

    Args:
        document: what `compare --json` prints; every string in it is treated as hostile.

    Raises:
        DocumentError: the document has another schema, or a part of the wrong type.
        AssetError: a file of the page is not installed.
    """
    comparison = read_comparison(document)
    return assets.still_page(
        _environment(),
        "compare.html.j2",
        assets.compare_style(),
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
    environment.globals.update(words=words)
    return environment


@dataclass(frozen=True, slots=True)
class Curve:
    """Step numbers and seconds of one run."""

    steps: list[float]
    seconds: list[float]


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


@dataclass(frozen=True, slots=True)
class Bars:
    """One phase: widths in percent of the longest bar of all phases in either run."""

    before_pct: float
    after_pct: float


def curve_of(columns: Mapping[str, Numbers]) -> Curve:
    """Return the steps whose number and time are both known."""
    pairs = zip(columns.get("step", []), columns.get("seconds", []), strict=False)
    points = [(step, s) for step, s in pairs if step is not None and s is not None]
    return Curve([step for step, _ in points], [s for _, s in points])


def steps_drawing(comparison: ComparisonDocument) -> Steps | None:
    """Return the drawing; None where a run has fewer than two steps."""
    before, after = (curve_of(comparison.steps.get(run, {})) for run in ("before", "after"))
    if min(len(before.steps), len(after.steps)) < 2:
        return None
    top = _round_up(max(*before.seconds, *after.seconds))
    # Runs are laid over each other from their first step, whatever its number is.
    length = max(_length(before), _length(after)) or 1.0
    marks = [(_y(top * part, top), top * part) for part in (0.0, 0.5, 1.0)]
    return Steps(
        before=_path(before, length, top),
        after=_path(after, length, top),
        top_s=top,
        first=min(before.steps[0], after.steps[0]),
        last=min(before.steps[0], after.steps[0]) + length,
        marks=marks,
    )


def phase_bars(comparison: ComparisonDocument) -> list[Bars]:
    """Return a pair of bars for each phase, on one scale."""
    longest = max((max(p.before_s, p.after_s) for p in comparison.phases), default=0.0) or 1.0
    return [
        Bars(round(100 * p.before_s / longest, 2), round(100 * p.after_s / longest, 2))
        for p in comparison.phases
    ]


def _length(curve: Curve) -> float:
    return curve.steps[-1] - curve.steps[0]


def _path(curve: Curve, length: float, top: float) -> str:
    stride = max(1, math.ceil(len(curve.steps) / _MOST_POINTS))
    points = [
        f"{_PAD + (WIDTH - 2 * _PAD) * (step - curve.steps[0]) / length:.1f} {_y(value, top):.1f}"
        for step, value in zip(curve.steps[::stride], curve.seconds[::stride], strict=True)
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
