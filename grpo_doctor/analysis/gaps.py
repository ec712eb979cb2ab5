"""Between which phases the unattributed time lies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from grpo_doctor.analysis.intervals import gaps, overlaps
from grpo_doctor.analysis.rows import NO_PHASE
from grpo_doctor.analysis.steps import NS_PER_S
from grpo_doctor.phases import PHASES

if TYPE_CHECKING:
    from grpo_doctor.analysis import Analysis

BEGIN, END = "the step's begin", "its end"


def gap_seconds(analysis: Analysis) -> dict[tuple[str, str], float]:
    """Unattributed seconds per step by (phase before, phase after), largest first.

    Means over used steps and stepping ranks. The step's own ends stand in for a missing phase.
    """
    names = (*PHASES, "")
    total: dict[tuple[str, str], float] = {}
    count = len(analysis.steps.used) * int(analysis.steps.stepping.sum())
    for column, track in enumerate(analysis.tracks):
        windows, _ = analysis.steps.windows(column, used=True)
        found = overlaps(windows, gaps(track.pieces))
        phase = np.r_[NO_PHASE, track.phase, NO_PHASE]
        at = np.searchsorted(track.pieces.start_ns, found.start_ns, side="right")
        inside_before = found.start_ns > windows.start_ns[found.left]
        inside_after = found.end_ns < windows.end_ns[found.left]
        before = np.where(inside_before, phase[at], NO_PHASE)
        after = np.where(inside_after, phase[at + 1], NO_PHASE)
        pairs, group = np.unique(np.stack([before, after]), axis=1, return_inverse=True)
        sums = np.bincount(np.ravel(group), weights=found.length_ns, minlength=pairs.shape[1])
        for (left, right), nanoseconds in zip(pairs.T, sums, strict=True):
            key = (names[left] or BEGIN, names[right] or END)
            total[key] = total.get(key, 0.0) + nanoseconds / NS_PER_S / count
    return dict(sorted(total.items(), key=lambda item: -item[1]))
