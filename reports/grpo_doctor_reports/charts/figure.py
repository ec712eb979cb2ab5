"""Figures in plotly's own format, each made once: the page draws them, a notebook shows them.

A trace of `boxes` (edges x0, x1, y0, y1) becomes one outline, and a color is the name of one of
the page's tokens until it is drawn, so that the reader's theme decides. `meta` says what a trace or
a layout is about: its phase, its axis.

Draw less than was recorded, without losing lows, highs and the slowest steps.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from itertools import pairwise
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, Final

from grpo_doctor_reports.schema.part import Numbers

if TYPE_CHECKING:
    import plotly.graph_objects as go


Figure = dict[str, Any]

_MARK = "\x01"  # no text of a document has one: `text_safety.clean` made it visible
_SIGNIFICANT_DIGITS = 3
_MOST_DECIMALS = 12
_EXACT_STEPS = 100_000  # a time axis is exact to one part in this many: far below a pixel
_LIGHT: Final = re.compile(r"--([\w-]+): (?:light-dark\()?(#\w+)")


@dataclass(frozen=True, slots=True)
class Chart:
    """Figures of one kind by name, with a `summary` in a line for those who cannot see them.

    `note` says what was left out of the drawing; `facts` are for the page's script.
    """

    figures: dict[str, Figure]
    summary: str
    note: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Column:
    """Numbers and the decimals that are kept of them."""

    values: Numbers
    decimals: int = 0

    def packed(self) -> list[int | None]:
        """Return `[decimals, first, difference, difference, ...]`, None for None."""
        packed: list[int | None] = [self.decimals]
        before = 0
        for value in self.values:
            scaled = None if value is None else round(value * 10.0**self.decimals)
            packed.append(None if scaled is None else scaled - before)
            before = before if scaled is None else scaled
        return packed


def column(values: Sequence[float | None]) -> Column:
    """Return numbers to three digits of a typical (median) magnitude."""
    sizes = [abs(value) for value in values if value]
    typical = median(sizes) if sizes else 1.0
    decimals = _SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(typical))
    return Column(list(values), _clamped(decimals))


def moments(values: Sequence[float | None], length: float) -> Column:
    """Return places on an axis of this length, exact to far below a pixel."""
    finest = math.ceil(math.log10(_EXACT_STEPS / length)) if length > 0 else 0
    return Column(list(values), _clamped(finest))


def _clamped(decimals: int) -> int:
    return max(-_MOST_DECIMALS, min(_MOST_DECIMALS, decimals))


def token(name: str) -> str:
    """Return what stands for a color of the page's style sheet."""
    return f"{_MARK}{name}"


def plain(text: object) -> str:
    """Return text so that plotly, which reads pseudo-HTML, shows it as it was written."""
    return html.escape(str(text), quote=False)


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The axis of all charts over time: its length, and the unit that it counts in."""

    end_s: float

    @property
    def unit(self) -> tuple[float, str]:
        """Return seconds per unit, and the unit's name."""
        if self.end_s < 300:
            return 1.0, "s"
        return (60.0, "min") if self.end_s < 3 * 3600 else (3600.0, "h")

    def moments(self, times_s: Iterable[float | None], length_s: float | None = None) -> Column:
        """Return moments in the axis's unit; `length_s` is the shortest stretch to zoom to."""
        divisor, _ = self.unit
        scaled = [None if time is None else time / divisor for time in times_s]
        return moments(scaled, (self.end_s if length_s is None else length_s) / divisor)

    def layout(self, **more: Any) -> Figure:
        """Return the horizontal axis of a chart over time."""
        divisor, name = self.unit
        title = axis_title(f"time, {name}")
        return axis(
            fixedrange=False, showgrid=False, range=[0, self.end_s / divisor], title=title, **more
        )


def axis_title(text: str) -> Figure:
    """Return the title of an axis."""
    return {"text": text, "font": {"size": 11, "color": token("muted")}, "standoff": 6}


def axis(**more: Any) -> Figure:
    """Return an axis in the page's style."""
    return {
        "gridcolor": token("line"), "linecolor": token("line"), "zeroline": False, "ticks": "",
        "tickfont": {"color": token("muted"), "size": 11}, "fixedrange": True, **more,
    }  # fmt: skip


def figure(traces: Sequence[Figure], height: int, **layout: Any) -> Figure:
    """Return a figure in the page's style; `layout` is what is special about it."""
    hover = {"bgcolor": token("surface"), "bordercolor": token("muted"), "align": "left",
             "font": {"color": token("ink"), "size": 12}}  # fmt: skip
    return {
        "data": list(traces),
        "layout": {
            "height": height, "showlegend": False, "hovermode": "closest", "hoverlabel": hover,
            "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "dragmode": "zoom",
            "font": {"size": 12, "color": token("ink")}, **layout,
        },
    }  # fmt: skip


def boxes(
    edges: Sequence[Column], color: str, outline: Figure | None = None, **more: Any
) -> Figure:
    """Return boxes between `edges` (x0, x1, y0, y1) as one trace: one path, not thousands."""
    edge = {"width": 0, "simplify": False, **(outline or {})}
    return {
        "type": "scatter", "mode": "lines", "fill": "toself", "fillcolor": color, "line": edge,
        "hoverinfo": "skip", "boxes": list(edges), **more,
    }  # fmt: skip


def line(x: Column, y: Column, color: str, **more: Any) -> Figure:
    """Return a line."""
    style = {"width": 1.4, "color": color}
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": style, **more}


def pack_text(text: str) -> str:
    """Return base64 of the gzipped UTF-8 of `text`; the same text gives the same bytes."""
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def packed(value: Any) -> str:
    """Return figures and facts as the page carries them: nothing but base64."""
    return pack_text(json.dumps(value, default=_packed_column, separators=(",", ":")))


def _packed_column(value: Any) -> dict[str, list[int | None]]:
    if isinstance(value, Column):
        return {"n": value.packed()}
    raise TypeError(f"a figure holds a {type(value).__name__}")


def drawn(value: Any) -> Any:
    """Return a figure as plotly takes it, in the colors of the light theme."""
    match value:
        case Column(values=values):
            return values
        case str():
            return _light_tokens()[value[1:]] if value.startswith(_MARK) else value
        case list():
            return [drawn(item) for item in value]
        case {"boxes": [x0, x1, y0, y1], **rest}:
            corners = list(zip(x0.values, x1.values, y0.values, y1.values, strict=True))
            x = [at for a, b, _, _ in corners for at in (a, a, b, b, a, None)]
            y = [at for _, _, a, b in corners for at in (a, b, b, a, a, None)]
            return {**drawn(rest), "x": x, "y": y}
        case dict():
            return {key: drawn(item) for key, item in value.items()}
    return value


@cache
def _light_tokens() -> dict[str, str]:
    style = resources.files("grpo_doctor_reports").joinpath("assets", "report.css")
    return dict(_LIGHT.findall(style.read_text(encoding="utf-8")))


def notebook_figure(spec: Figure) -> go.Figure:
    """Return a figure for a notebook."""
    import plotly.graph_objects as go  # noqa: PLC0415 (half a second that no page needs)

    return go.Figure(drawn(spec))


@dataclass(frozen=True, slots=True)
class Line:
    """A line to draw; where points were merged, `lows` and `highs` bound what each stands for."""

    times: Numbers
    values: Numbers
    lows: Numbers
    highs: Numbers

    def traces(self, x: Column, color: str, *, spread: float, **more: Any) -> list[Figure]:
        """Return the line, over a pale area (of opacity `spread`) from the lows to the highs."""
        drawn = line(x, column(self.values), color, **more)
        known = [at for at, low in enumerate(self.lows) if low is not None]
        if not known:
            return [drawn]
        around = [*known, *reversed(known)]
        bounds = [self.lows[at] for at in known] + [self.highs[at] for at in reversed(known)]
        edge = Column([x.values[at] for at in around], x.decimals)
        axes = {"yaxis": more["yaxis"]} if "yaxis" in more else {}
        area = line(
            edge, column(bounds), color, line={"width": 0}, hoverinfo="skip", fill="toself",
            fillcolor=color, opacity=spread, **axes,
        )  # fmt: skip
        return [area, drawn]


def thin_line(times: Numbers, values: Numbers, limit: int) -> Line:
    """Return at most `limit` points: the samples, or mean, low and high of equally many each."""
    points = [(t, v) for t, v in zip(times, values, strict=True) if t is not None]
    if len(points) <= limit:
        return Line([t for t, _ in points], [v for _, v in points], [], [])
    buckets = [points[start:end] for start, end in bin_edges(len(points), limit)]
    rows = [[v for _, v in bucket if v is not None] for bucket in buckets]
    return Line(
        times=[bucket[len(bucket) // 2][0] for bucket in buckets],
        values=[fmean(row) if row else None for row in rows],
        lows=[min(row, default=None) for row in rows],
        highs=[max(row, default=None) for row in rows],
    )


def slowest_columns(rows: list[Numbers], width: int, limit: int) -> list[int]:
    """Return at most `limit` of `width` columns: of equal bins, the one that is largest on average.

    An average of columns would hide the one step that everybody looks for.
    """
    if width <= limit:
        return list(range(width))
    means = [known_mean([row[at] for row in rows]) or 0.0 for at in range(width)]
    return [max(range(*edges), key=means.__getitem__) for edges in bin_edges(width, limit)]


def bin_edges(width: int, columns: int) -> list[tuple[int, int]]:
    """Return [start, end) of each of `columns` nearly equal bins of `width` items."""
    cuts = [round(at * width / columns) for at in range(columns + 1)]
    return list(pairwise(cuts))


def known_mean(values: Numbers) -> float | None:
    """Return the mean of what is known, None where nothing is."""
    numbers = [value for value in values if value is not None]
    return fmean(numbers) if numbers else None
