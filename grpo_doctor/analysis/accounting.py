"""What every moment of a step was: which phase, and work, wait, transfer or idle.

The four kinds add up to the step. Idle is a rank that does nothing that anybody saw: nothing is
open on its main thread, neither a phase nor a span of the user's own nor a collective; or it waits
for a rollout engine that is a server of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.rows import COLUMNS, UNATTRIBUTED_CODE, PhaseTrack, RankRows
from grpo_doctor.analysis.steps import NS_PER_S, Steps
from grpo_doctor.trace import intervals
from grpo_doctor.trace.model import Kind, Trace

Table = NDArray[np.float64]


def phase_seconds(
    steps: Steps, tracks: Sequence[PhaseTrack], only: Sequence[intervals.Intervals] | None = None
) -> Table:
    """Seconds of each phase, shape (steps, ranks, COLUMNS); NaN where a rank has no such step.

    The last column is what no phase covers; a row's sum is the step's length. With `only` what lies
    in some intervals of each rank, such as its waits.
    """
    result = np.full((len(steps.numbers), len(tracks), COLUMNS), np.nan)
    for column, track in enumerate(tracks):
        windows, row = steps.windows(column)
        if not len(windows):
            continue
        if only is None:
            length_ns = (windows.end_ns - windows.start_ns).astype(np.float64)
            pieces, phase = track.pieces, track.phase
        else:
            inside = intervals.overlaps(only[column], windows)
            length_ns = _sums(inside.right, inside.length_ns, len(windows))
            parts = intervals.overlaps(track.pieces, inside.intervals)
            pieces, phase = parts.intervals, track.phase[parts.left]
        overlap = intervals.overlaps(pieces, windows)
        cell = overlap.right * COLUMNS + phase[overlap.left]
        sums = _sums(cell, overlap.length_ns, len(windows) * COLUMNS).reshape(-1, COLUMNS)
        sums[:, UNATTRIBUTED_CODE] = length_ns - sums.sum(axis=1)
        result[row, column] = sums / NS_PER_S
    return result


def _sums(cell: NDArray[np.intp], length: NDArray[np.int64], size: int) -> Table:
    # Sums of nanoseconds are exact in float64 up to 104 days.
    return np.bincount(cell, weights=length, minlength=size).astype(np.float64)


ENGINE_SPAN = "rollout/generate"
# In a rank that trains while a loop of its own generates: no samples are there yet.
ROLLOUT_WAIT_SPAN = "rollout/wait"
_OPEN = (Kind.SPAN, Kind.COLLECTIVE, Kind.COLLECTIVE_WAIT)


def has_engine(trace: Trace) -> bool:
    """Whether completions are made by a server next to the ranks, which then only wait for it."""
    return bool(trace.run.setting("vllm.mode").fact == "server")


def engine_waits(trace: Trace, main: RankRows) -> intervals.Intervals:
    """When a rank waited for completions that others make; never where the engine is inside it."""
    waits = (ROLLOUT_WAIT_SPAN, ENGINE_SPAN) if has_engine(trace) else (ROLLOUT_WAIT_SPAN,)
    names = [trace.names.index(name) for name in waits if name in trace.names]
    spans = trace.spans
    is_wait = np.isin(spans.name[main.rows], names)
    rows = main.rows[is_wait & (spans.kind[main.rows] == Kind.SPAN)]
    return intervals.union(spans.start_ns[rows], spans.end_ns[rows])


def idle(
    trace: Trace,
    steps: Steps,
    column: int,
    main: RankRows,
    accounted: tuple[intervals.Intervals, intervals.Intervals],
) -> intervals.Intervals:
    """One rank's idle time within its steps, next to its waits and transfers, `accounted`."""
    if trace.run.origin and trace.run.origin.durations_only:
        return intervals.none()  # what no timer covers is unknown
    spans, rows = trace.spans, main.rows
    windows, _ = steps.windows(column)
    rows = rows[np.isin(spans.kind[rows], _OPEN)]
    nothing = intervals.intersect(
        windows, intervals.gaps(intervals.union(spans.start_ns[rows], spans.end_ns[rows]))
    )
    engine = engine_waits(trace, main)
    for stretches in accounted:
        engine = intervals.subtract(engine, stretches).intervals
    return intervals.together([nothing, engine])


@dataclass(frozen=True, slots=True)
class Accounting:
    """Seconds per step and rank, shape (S, R) each; NaN where a rank has no such step.

    `work` is what the rank does by itself, `wait` what it spends for another rank's sake,
    `transfer` is inside collectives that everybody has reached, `idle` has nothing open or waits
    for the engine.
    """

    work: Table
    wait: Table
    transfer: Table
    idle: Table

    def shares(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> dict[str, float]:
        """Return each kind's share of rank time over some steps and ranks; {} without any time."""
        cells = np.ix_(rows, columns)
        kinds = {"work": self.work, "wait": self.wait, "transfer": self.transfer, "idle": self.idle}
        sums = {kind: float(np.nansum(table[cells])) for kind, table in kinds.items()}
        total = sum(sums.values())
        return {kind: seconds / total for kind, seconds in sums.items()} if total > 0 else {}


def account(seconds: Table, waited: Table, transferred: Table, idled: Table) -> Accounting:
    """From tables by phase, shape (S, R, COLUMNS); the last three are parts of the first."""
    wait, transfer, idle = (table.sum(axis=2) for table in (waited, transferred, idled))
    return Accounting(seconds.sum(axis=2) - wait - transfer - idle, wait, transfer, idle)
