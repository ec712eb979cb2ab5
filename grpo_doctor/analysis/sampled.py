"""Sampled series over stretches of time: a value holds until the next sample."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.intervals import Intervals, overlaps
from grpo_doctor.trace.model import Series, Trace


def held(series: Series) -> tuple[Intervals, NDArray[np.float64]]:
    """Stretches over which a value held, and the value; unknown stretches are left out.

    The last sample holds for a moment only: nobody looked after it.
    """
    start = series.t_ns
    end = np.r_[start[1:], start[-1:] + 1]
    known = (end > start) & np.isfinite(series.values)
    return Intervals(start[known], end[known]), series.values[known]


def mean_over(series: Series, inside: Intervals) -> float | None:
    """The time-weighted mean within some intervals; None where nothing was sampled there."""
    stretches, values = held(series)
    found = overlaps(stretches, inside)
    length = found.length_ns.astype(np.float64)
    if not length.sum():
        return None
    return float((values[found.left] * length).sum() / length.sum())


def max_over(series: Series, inside: Intervals) -> float | None:
    """The largest value within some intervals; None where nothing was sampled there."""
    stretches, values = held(series)
    found = overlaps(stretches, inside)
    return float(values[found.left].max()) if len(found.left) else None


def series_named(trace: Trace, name: str) -> tuple[Series, ...]:
    """The series of one name that hold any known value."""
    return tuple(s for s in trace.series if s.name == name and np.isfinite(s.values).any())
