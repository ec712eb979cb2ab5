"""What every chart hands to the page, and how it draws less than was recorded."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

from grpo_doctor_reports.packing import NumberPool
from grpo_doctor_reports.schema.part import Numbers


@dataclass(frozen=True, slots=True)
class Chart:
    """`data` goes to the script (JSON), `summary` and `note` to the reader.

    The summary says in one line what the chart shows, for those who cannot see it; the note says
    what was left out of the drawing, empty where nothing was.
    """

    data: dict[str, Any]
    summary: str
    note: str = ""


def rounded(value: float) -> float:
    """Return a number with the six digits that no chart shows more of."""
    return float(f"{value:.6g}")


def line_values(line: Line, pool: NumberPool) -> dict[str, int]:
    """Return where in the pool a line's values are, with its bounds where points were merged."""
    bounds = {"low": pool.add(line.lows), "high": pool.add(line.highs)} if line.is_merged else {}
    return {"v": pool.add(line.values), **bounds}


@dataclass(frozen=True, slots=True)
class Line:
    """A line to draw; where points were merged, `lows` and `highs` bound what each stands for."""

    times: Numbers
    values: Numbers
    lows: Numbers
    highs: Numbers

    @property
    def is_merged(self) -> bool:
        """Return whether a point stands for several samples."""
        return bool(self.lows)


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
