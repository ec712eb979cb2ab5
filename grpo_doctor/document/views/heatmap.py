"""Step and phase seconds by rank and step."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis import Analysis
from grpo_doctor.document.numbers import column
from grpo_doctor.phases import PHASES
from grpo_doctor_reports.schema.part import Numbers
from grpo_doctor_reports.schema.views import Heatmap

MAX_STEPS = 1000
MAX_RANKS = 64
# Cells are drawn a few pixels wide; 0.1 ms is below what shows, and keeps the document small.
_DIGITS = 4


def heatmap(analysis: Analysis) -> Heatmap:
    """All steps and ranks; of many, the slowest of each bucket, so that no outlier is lost."""
    seconds = analysis.steps.seconds
    columns = slowest_of_each(_mean(seconds, axis=0), MAX_RANKS)
    columns = columns[analysis.steps.stepping[columns]]
    rows = slowest_of_each(_mean(seconds, axis=1), MAX_STEPS)
    cells = np.ix_(rows, columns)
    phases, waited = analysis.seconds[cells], analysis.waited[cells].sum(axis=2)
    return Heatmap(
        ranks=[analysis.ranks[i] for i in columns],
        steps=analysis.steps.numbers[rows].tolist(),
        step_seconds=_by_rank(seconds[cells]),
        phase_seconds={
            phase: _by_rank(phases[:, :, code])
            for code, phase in enumerate(PHASES)
            if np.nansum(phases[:, :, code]) > 0
        },
        wait_seconds=_by_rank(waited),
    )


def slowest_of_each(values: NDArray[np.float64], limit: int) -> NDArray[np.intp]:
    """Rows of the largest value in each of at most `limit` buckets, ascending; NaN is smallest."""
    if len(values) <= limit:
        return np.arange(len(values))
    edges = np.linspace(0, len(values), limit + 1).astype(np.intp)
    known = np.nan_to_num(values, nan=-1.0)
    pairs = itertools.pairwise(edges.tolist())
    return np.array([first + known[first:end].argmax() for first, end in pairs], dtype=np.intp)


def _mean(values: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """The mean of what is known; NaN where nothing is."""
    known = np.isfinite(values)
    count = known.sum(axis=axis)
    total = np.where(known, values, 0.0).sum(axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _by_rank(table: NDArray[np.float64]) -> list[Numbers]:
    return [column(rank, _DIGITS) for rank in table.T]
