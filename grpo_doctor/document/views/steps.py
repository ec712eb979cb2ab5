"""Every step of the run with its kind, for stepping through them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis import Analysis
from grpo_doctor.analysis.regimes import KINDS
from grpo_doctor.document.numbers import number, seconds
from grpo_doctor.document.views.heatmap import MAX_STEPS, slowest_of_each
from grpo_doctor_reports.schema.views import StepEntry


def step_entries(analysis: Analysis) -> list[StepEntry]:
    """All steps; of many, the slowest of each bucket."""
    steps = analysis.steps
    columns = np.flatnonzero(steps.stepping)
    begun = steps.start_ns[:, columns] >= 0
    if not begun.any():
        return []
    far = np.iinfo(np.int64).max
    start_ns = np.where(begun, steps.start_ns[:, columns], far).min(axis=1)
    end_ns = np.where(begun, steps.end_ns[:, columns], 0).max(axis=1)
    lengths, slowest = _means(steps.seconds[:, columns]), _slowest(analysis, columns)
    rows = slowest_of_each(lengths, MAX_STEPS)
    return [
        StepEntry(
            number=int(steps.numbers[row]),
            start_s=seconds(start_ns[row]),
            end_s=seconds(end_ns[row]),
            seconds=number(lengths[row]),
            kind=KINDS[analysis.regimes.kind[row]],
            slowest_rank=analysis.ranks[int(columns[slowest[row]])] if slowest[row] >= 0 else None,
        )
        for row in rows[np.argsort(start_ns[rows], kind="stable")]
    ]


def _means(lengths: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean over the ranks that ended each step; NaN where none did."""
    count = np.isfinite(lengths).sum(axis=1)
    mean: NDArray[np.float64] = np.where(
        count > 0, np.nansum(lengths, axis=1) / np.maximum(count, 1), np.nan
    )
    return mean


def _slowest(analysis: Analysis, columns: NDArray[np.intp]) -> NDArray[np.intp]:
    """The place of the rank with the most own work in each step; -1 where no rank ended it."""
    work = analysis.accounting.work[:, columns]
    known = np.isfinite(work)
    place = np.where(known, work, -np.inf).argmax(axis=1)
    return np.where(known.any(axis=1), place, -1)
