"""How long each phase took, per step and rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.intervals import Intervals, overlaps
from grpo_doctor.analysis.rows import COLUMNS, UNATTRIBUTED_CODE
from grpo_doctor.analysis.steps import NS_PER_S, Steps
from grpo_doctor.analysis.tracks import PhaseTrack

Table = NDArray[np.float64]


def phase_seconds(steps: Steps, tracks: Sequence[PhaseTrack]) -> Table:
    """Seconds of each phase, shape (steps, ranks, COLUMNS); NaN where a rank has no such step.

    The last column is what no phase covers; a row's sum is the step's length.
    """
    return _table(steps, tracks, None)


def part_seconds(steps: Steps, tracks: Sequence[PhaseTrack], part: Sequence[Intervals]) -> Table:
    """How much of `phase_seconds` lies in some intervals of each rank, such as its waits."""
    return _table(steps, tracks, part)


def _table(steps: Steps, tracks: Sequence[PhaseTrack], only: Sequence[Intervals] | None) -> Table:
    result = np.full((len(steps.numbers), len(tracks), COLUMNS), np.nan)
    for column, track in enumerate(tracks):
        windows, row = steps.windows(column)
        if not len(windows):
            continue
        if only is None:
            whole = (windows.end_ns - windows.start_ns).astype(np.float64)
            pieces, phase = track.pieces, track.phase
        else:
            inside = overlaps(only[column], windows)
            whole = _sums(inside.right, inside.length_ns, len(windows))
            parts = overlaps(track.pieces, inside.intervals)
            pieces, phase = parts.intervals, track.phase[parts.left]
        found = overlaps(pieces, windows)
        cell = found.right * COLUMNS + phase[found.left]
        sums = _sums(cell, found.length_ns, len(windows) * COLUMNS).reshape(-1, COLUMNS)
        sums[:, UNATTRIBUTED_CODE] = whole - sums.sum(axis=1)
        result[row, column] = sums / NS_PER_S
    return result


def _sums(cell: NDArray[np.intp], length: NDArray[np.int64], size: int) -> Table:
    # Sums of nanoseconds are exact in float64 up to 104 days.
    return np.bincount(cell, weights=length, minlength=size).astype(np.float64)
