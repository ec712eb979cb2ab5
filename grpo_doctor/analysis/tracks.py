"""Each rank's time as one row of phases: every instant belongs to at most one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.intervals import Intervals, Rows, innermost
from grpo_doctor.analysis.rows import RankRows
from grpo_doctor.trace.model import Kind, Spans


@dataclass(frozen=True, slots=True)
class PhaseTrack:
    """One rank's phases. Neighboring pieces that touch differ in phase or in `open`."""

    rank: int
    pieces: Intervals
    phase: Rows
    open: NDArray[np.bool_]  # the span never ended; the piece reaches to where it was last seen

    def of(self, phase: int) -> Intervals:
        """Return the pieces of one phase."""
        return self.pieces.select(self.phase == phase)


def phase_track(spans: Spans, main: RankRows) -> PhaseTrack:
    """Give each instant to the innermost span of the main thread whose name is a phase's.

    A sub-span counts to its phase (`rollout/generate` to `rollout`), a phase inside another to
    itself (an `offload` within `rollout` to `offload`).
    """
    chosen = (spans.kind[main.rows] == Kind.SPAN) & (main.phase >= 0)
    rows, phase = main.rows[chosen], main.phase[chosen]
    pieces, owner = innermost(spans.start_ns[rows], spans.end_ns[rows])
    return _merged(main.rank, pieces, phase[owner], spans.open[rows][owner])


def _merged(rank: int, pieces: Intervals, phase: Rows, open_: NDArray[np.bool_]) -> PhaseTrack:
    if not len(pieces):
        return PhaseTrack(rank, pieces, phase, open_)
    same = (
        (pieces.start_ns[1:] == pieces.end_ns[:-1])
        & (phase[1:] == phase[:-1])
        & (open_[1:] == open_[:-1])
    )
    changes = np.flatnonzero(~same)
    begins = np.concatenate([[0], changes + 1])
    ends = np.concatenate([changes, [len(pieces) - 1]])
    joined = Intervals(pieces.start_ns[begins], pieces.end_ns[ends])
    return PhaseTrack(rank, joined, phase[begins], open_[begins])
