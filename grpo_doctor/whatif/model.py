"""A run's own steps as work between barriers, so that a change can be replayed.

The law: ranks work by themselves until all of them have entered a collective; the slowest decides
when that is. So a step takes the sum, over its stretches between barriers, of the largest rank's
work in the stretch::

    step = sum over stretches k of  max over ranks r of  sum over phases p of work[k, r, p]

Waiting is not work: it follows from the maximum. Transfer, the time from the last arrival to the
end of a collective, is work of the phase it lies in. Without recorded collectives a step is one
stretch. Asynchronous collectives and those of a part of the ranks are no barriers; what that costs
in accuracy shows when the unedited model is replayed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis import Analysis
from grpo_doctor.analysis.intervals import Intervals, Rows, Times, cut, gaps, overlaps
from grpo_doctor.analysis.rows import COLUMNS, UNATTRIBUTED_CODE
from grpo_doctor.analysis.steps import NS_PER_S


@dataclass(frozen=True, slots=True)
class StepModel:
    """Work of U used steps and R stepping ranks, in K stretches.

    Rows (n,): `stretch`, `rank` (column), `phase` code and `seconds` of work. `step_of` (K,) says
    which used step a stretch belongs to, `measured_s` (U,) how long each really took.
    """

    ranks: tuple[int, ...]
    measured_s: NDArray[np.float64]
    stretch: Rows
    rank: Rows
    phase: Rows
    seconds: NDArray[np.float64]
    step_of: Rows


def build_model(analysis: Analysis) -> StepModel:
    """Cuts each rank's work in the used steps at the barriers."""
    steps = analysis.steps
    columns = np.flatnonzero(steps.stepping)
    pieces = cut(_within(analysis.waits.barriers_ns, analysis.used_windows))
    parts = [_rank_work(analysis, int(column), pieces) for column in columns]
    count = len(steps.numbers) + 1
    cells = [piece * count + step for piece, step, _, _ in parts]
    stretches, every = np.unique(np.concatenate([*cells, _NO_ROWS]), return_inverse=True)
    used = np.full(count, -1, dtype=np.intp)
    used[steps.used] = np.arange(len(steps.used))
    return StepModel(
        ranks=tuple(analysis.ranks[column] for column in columns),
        measured_s=analysis.step_seconds,
        stretch=every,
        rank=np.repeat(np.arange(len(parts)), [len(cell) for cell in cells]),
        phase=np.concatenate([*(phase for _, _, phase, _ in parts), _NO_ROWS]),
        seconds=np.concatenate([*(seconds for _, _, _, seconds in parts), np.empty(0)]),
        step_of=used[stretches % count],
    )


_NO_ROWS = np.empty(0, dtype=np.intp)


def _within(moments: Times, windows: Intervals) -> Times:
    place = np.searchsorted(windows.start_ns, moments, side="right") - 1
    inside = (place >= 0) & (moments < np.r_[windows.end_ns, 0][place])
    kept: Times = moments[inside]
    return kept


def _rank_work(
    analysis: Analysis, column: int, pieces: Intervals
) -> tuple[Rows, Rows, Rows, NDArray[np.float64]]:
    """One rank's work by stretch: (piece, step row, phase, seconds), each shape (n,)."""
    windows, row = analysis.steps.windows(column, used=True)
    work = overlaps(windows, gaps(analysis.waits.per_rank[column]))
    stretches = overlaps(work.intervals, pieces)
    step = row[work.left[stretches.left]]
    track = analysis.tracks[column]
    named = overlaps(stretches.intervals, track.pieces)
    length = np.bincount(named.left, weights=named.length_ns, minlength=len(step))
    rest = stretches.length_ns - length
    left_over = np.flatnonzero(rest > 0)
    place = np.concatenate([named.left, left_over])
    phase = np.concatenate(
        [track.phase[named.right], np.full(len(left_over), UNATTRIBUTED_CODE, dtype=np.intp)]
    )
    nanoseconds = np.concatenate([named.length_ns, rest[left_over]])
    # Many pieces of one phase lie in one stretch: they are one row.
    cell = (stretches.right[place] * (len(analysis.steps.numbers) + 1) + step[place]) * COLUMNS
    cells, group = np.unique(cell + phase, return_inverse=True)
    seconds = np.bincount(group, weights=nanoseconds, minlength=len(cells)) / NS_PER_S
    where = cells // COLUMNS
    count = len(analysis.steps.numbers) + 1
    return where // count, where % count, cells % COLUMNS, seconds
