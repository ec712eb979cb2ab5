"""Step and phase seconds by rank and step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis import Analysis
from grpo_doctor.document.numbers import column
from grpo_doctor.document.views.spread import known_mean, slowest_of_each
from grpo_doctor.phases import PHASES
from grpo_doctor_reports.schema.part import Numbers
from grpo_doctor_reports.schema.views import Heatmap, RankMeans

MAX_STEPS = 1000
MAX_RANKS = 64
# Cells are drawn a few pixels wide; 0.1 ms is below what shows, and keeps the document small.
_DIGITS = 4


def heatmap(analysis: Analysis) -> Heatmap:
    """All steps and ranks; of many, the slowest of each bucket, so that no outlier is lost.

    The slowest rank is the one with the most work of its own: who waits takes as long as whom it
    waits for.
    """
    stepping = np.flatnonzero(analysis.steps.stepping)
    seconds = analysis.steps.seconds
    every_wait = analysis.used_waited.sum(axis=2)
    own_means = known_mean(analysis.used_seconds.sum(axis=2) - every_wait, axis=0)
    columns = stepping[slowest_of_each(own_means, MAX_RANKS)]
    rows = slowest_of_each(known_mean(seconds, axis=1), MAX_STEPS)
    cells = np.ix_(rows, columns)
    phases, waited = analysis.seconds[cells], analysis.waited[cells]
    return Heatmap(
        ranks=[analysis.ranks[i] for i in columns],
        steps=analysis.steps.numbers[rows].tolist(),
        step_seconds=_by_rank(seconds[cells]),
        phase_seconds=_by_phase(phases),
        wait_seconds=_by_rank(waited.sum(axis=2)),
        phase_wait_seconds=_by_phase(waited),
        steps_total=len(seconds),
        means=RankMeans(
            ranks=[analysis.ranks[c] for c in stepping],
            own_seconds=column(own_means),
            wait_seconds=column(known_mean(every_wait, axis=0)),
        ),
    )


def _by_phase(table: NDArray[np.float64]) -> dict[str, list[Numbers]]:
    return {
        phase: _by_rank(table[:, :, code])
        for code, phase in enumerate(PHASES)
        if np.nansum(table[:, :, code]) > 0
    }


def _by_rank(table: NDArray[np.float64]) -> list[Numbers]:
    return [column(rank, _DIGITS) for rank in table.T]
