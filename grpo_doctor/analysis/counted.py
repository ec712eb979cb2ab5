"""A recorded counter by step and rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.intervals import holding
from grpo_doctor.analysis.sampled import series_named

if TYPE_CHECKING:
    from grpo_doctor.analysis import Analysis


def counted(analysis: Analysis, name: str) -> NDArray[np.float64]:
    """The sum of a counter's samples, shape (used steps, stepping ranks).

    NaN where a rank recorded none in a step.
    """
    steps = analysis.steps
    result = np.full((len(steps.numbers), len(analysis.ranks)), np.nan)
    columns = {rank: column for column, rank in enumerate(analysis.ranks)}
    for series in series_named(analysis.trace, name):
        column = columns.get(series.rank) if series.rank is not None else None
        if series.scope != "counter" or column is None:
            continue
        windows, step = steps.windows(column, used=True)
        place = holding(windows, series.t_ns)
        inside = (place >= 0) & np.isfinite(series.values)
        rows = step[place[inside]]
        result[rows, column] = np.where(np.isnan(result[rows, column]), 0, result[rows, column])
        np.add.at(result[:, column], rows, series.values[inside])
    chosen: NDArray[np.float64] = result[np.ix_(steps.used, np.flatnonzero(steps.stepping))]
    return chosen


def counted_mean(analysis: Analysis, name: str) -> float | None:
    """A counter's sum per step, the mean over the steps and ranks that recorded it; or None."""
    found = counted(analysis, name)
    return float(np.nanmean(found)) if np.isfinite(found).any() else None
