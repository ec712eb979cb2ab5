"""Draw less than was recorded, without losing lows, highs and the slowest steps."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

from grpo_doctor_reports.charts.figure import Column, Figure, column, line
from grpo_doctor_reports.schema.part import Numbers


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
