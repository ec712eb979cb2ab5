"""Which rows of the span table describe a rank: those of its main thread.

Each rank's time as one row of phases: every instant belongs to at most one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grpo_doctor.phases import PHASES, phase_of
from grpo_doctor.trace.intervals import Intervals, Rows, innermost
from grpo_doctor.trace.model import Kind, Spans, Trace

NO_PHASE = -1
CODES = {phase: code for code, phase in enumerate(PHASES)}
UNATTRIBUTED_CODE = len(PHASES)
COLUMNS = len(PHASES) + 1  # one per phase, and the last for what no phase covers


@dataclass(frozen=True, slots=True)
class RankRows:
    """The main thread's rows of one rank, in order of start, and the phase code of each."""

    rank: int
    rows: Rows
    phase: Rows  # NO_PHASE where the row's name is not a phase's


def rank_rows(trace: Trace) -> tuple[RankRows, ...]:
    """Return one entry per rank of the trace, in its order. Shapes: (rows of that rank,)."""
    codes = np.array([CODES.get(phase_of(n) or "", NO_PHASE) for n in trace.names], dtype=np.intp)
    carrying: dict[int, list[int]] = {rank: [] for rank in trace.ranks}
    for process in trace.processes:
        if process.carries_steps:
            carrying[process.rank].append(process.index)
    by_rank = []
    for rank, indices in carrying.items():
        parts = [_main_thread(trace, index, codes) for index in indices]
        rows = np.concatenate(parts)
        if len(parts) > 1:  # a restarted rank: two processes, one story
            spans = trace.spans
            keys = (spans.depth[rows], -spans.end_ns[rows], spans.start_ns[rows])
            rows = rows[np.lexsort(keys)]
        phase = codes[trace.spans.name[rows]] if len(codes) else np.empty(0, dtype=np.intp)
        by_rank.append(RankRows(rank, rows, phase))
    return tuple(by_rank)


def _main_thread(trace: Trace, process: int, codes: Rows) -> Rows:
    """Return rows of the thread that carries the steps; without steps, of the busiest thread."""
    spans = trace.spans
    block = spans.of_process(process)
    kind, thread = spans.kind[block], spans.thread[block]
    steps = thread[kind == Kind.STEP]
    if len(steps):
        main = int(np.bincount(steps).argmax())
    else:
        candidate = (kind == Kind.SPAN) & (codes[spans.name[block]] >= 0)
        if not candidate.any():
            return np.empty(0, dtype=np.intp)
        lengths = (spans.end_ns[block] - spans.start_ns[block])[candidate]
        main = int(np.bincount(thread[candidate], weights=lengths).argmax())
    rows: Rows = block.start + np.flatnonzero(thread == main)
    return rows


@dataclass(frozen=True, slots=True)
class PhaseTrack:
    """One rank's phases. Neighboring pieces that touch differ in phase; that of a span which never
    ended reaches to where its process was last seen."""

    rank: int
    pieces: Intervals
    phase: Rows

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
    phase = phase[owner]
    if not len(pieces):
        return PhaseTrack(main.rank, pieces, phase)
    apart = (pieces.start_ns[1:] != pieces.end_ns[:-1]) | (phase[1:] != phase[:-1])
    begins, ends = np.flatnonzero(np.r_[True, apart]), np.flatnonzero(np.r_[apart, True])
    joined = Intervals(pieces.start_ns[begins], pieces.end_ns[ends])
    return PhaseTrack(main.rank, joined, phase[begins])
