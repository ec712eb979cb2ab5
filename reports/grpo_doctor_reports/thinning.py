"""Draw less than was recorded without losing what matters: peaks, dips, dominant phases."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from grpo_doctor_reports.model import Band
from grpo_doctor_reports.schema.part import Numbers


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
    known = [[v for _, v in bucket if v is not None] for bucket in buckets]
    return Line(
        times=[bucket[len(bucket) // 2][0] for bucket in buckets],
        values=[fmean(row) if row else None for row in known],
        lows=[min(row, default=None) for row in known],
        highs=[max(row, default=None) for row in known],
    )


def slowest_columns(rows: list[Numbers], width: int, limit: int) -> list[int]:
    """Return at most `limit` of `width` columns: of equal bins, the one that is largest on average.

    An average of columns would hide the one step that everybody looks for.
    """
    if width <= limit:
        return list(range(width))
    means = [_mean([row[at] for row in rows]) or 0.0 for at in range(width)]
    return [max(range(*edges), key=means.__getitem__) for edges in bin_edges(width, limit)]


def bin_edges(width: int, columns: int) -> list[tuple[int, int]]:
    """Return [start, end) of each of `columns` nearly equal bins of `width` items."""
    cuts = [round(at * width / columns) for at in range(columns + 1)]
    return list(pairwise(cuts))


def thin_bands(bands: list[Band], end_s: float, limit: int) -> list[Band]:
    """Return at most about `limit` bands of one rank.

    Time is cut into `limit` equal buckets and each goes to the phase that covers most of it; runs
    of equal buckets become one band. Open bands stay as they are.
    """
    if len(bands) <= limit or end_s <= 0:
        return bands
    width = end_s / limit
    covered: list[dict[str, float]] = [defaultdict(float) for _ in range(limit)]
    for band in bands:
        _cover(covered, band, width)
    kept = [band for band in bands if band.open]
    return _runs(covered, width, bands[0].rank) + kept


def _cover(covered: list[dict[str, float]], band: Band, width: float) -> None:
    first = min(len(covered) - 1, int(band.start_s / width))
    last = min(len(covered) - 1, int(band.end_s / width))
    for bucket in range(first, last + 1):
        start, end = max(band.start_s, bucket * width), min(band.end_s, (bucket + 1) * width)
        covered[bucket][band.phase] += max(0.0, end - start)


def _runs(covered: list[dict[str, float]], width: float, rank: int) -> list[Band]:
    runs: list[Band] = []
    for bucket, phases in enumerate(covered):
        if sum(phases.values()) < width / 2:
            continue
        phase = max(phases, key=lambda name: phases[name])
        start, end = bucket * width, (bucket + 1) * width
        if runs and runs[-1].phase == phase and abs(runs[-1].end_s - start) < width / 2:
            runs[-1] = Band(rank, phase, runs[-1].start_s, end, open=False)
        else:
            runs.append(Band(rank, phase, start, end, open=False))
    return runs


def _mean(values: Numbers) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
