"""Sampled series over stretches of time: a value holds until the next sample."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.trace.intervals import Intervals, Times, covers, overlaps
from grpo_doctor.trace.model import Series, Trace


def held(series: Series) -> tuple[Intervals, NDArray[np.float64]]:
    """Stretch over which a value held, and the value; unknown stretches are left out.

    The last sample holds for a moment only: none follows it.
    """
    start = series.t_ns
    end = np.r_[start[1:], start[-1:] + 1]
    known = (end > start) & np.isfinite(series.values)
    return Intervals(start[known], end[known]), series.values[known]


def mean_over(series: Series, inside: Intervals) -> float | None:
    """Return the time-weighted mean within some intervals; None where nothing was sampled there."""
    stretches, values = held(series)
    overlap = overlaps(stretches, inside)
    length = overlap.length_ns.astype(np.float64)
    if not length.sum():
        return None
    return float((values[overlap.left] * length).sum() / length.sum())


def highest_mean(trace: Trace, name: str, inside: Intervals) -> float | None:
    """A series' mean within some intervals, of the host, GPU or rank where it is highest; None
    where nothing was sampled there."""
    means = (mean_over(series, inside) for series in series_named(trace, name))
    return max((mean for mean in means if mean is not None), default=None)


def max_over(series: Series, inside: Intervals) -> float | None:
    """Return the largest value within some intervals; None where nothing was sampled there."""
    stretches, values = held(series)
    overlap = overlaps(stretches, inside)
    return float(values[overlap.left].max()) if len(overlap.left) else None


def series_named(trace: Trace, name: str) -> tuple[Series, ...]:
    """Return the series of one name that hold any known value."""
    return tuple(s for s in trace.series if s.name == name and np.isfinite(s.values).any())


def values_in(series: Series, inside: Intervals) -> NDArray[np.float64]:
    """Return the known samples that were taken within some intervals."""
    known: NDArray[np.float64] = series.values[
        covers(inside, series.t_ns) & np.isfinite(series.values)
    ]
    return known


def value_at(series: Series, moments_ns: Times) -> NDArray[np.float64]:
    """Return the value that held at each moment; NaN before the first sample."""
    sample = np.searchsorted(series.t_ns, moments_ns, side="right") - 1
    if not len(series.t_ns):
        return np.full(len(moments_ns), np.nan)
    return np.where(sample >= 0, series.values[sample], np.nan)


def counter_sum(trace: Trace, name: str, inside: Intervals) -> float | None:
    """The sum of a recorded counter's samples within some intervals, over all ranks; or None."""
    counters = [s for s in series_named(trace, name) if s.scope == "counter"]
    if not counters:
        return None
    return float(sum(values_in(series, inside).sum() for series in counters))
