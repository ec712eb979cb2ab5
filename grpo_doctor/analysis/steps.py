"""The steps of a run: when each rank began and ended them, and which ones the means are over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.rows import RankRows
from grpo_doctor.trace.intervals import Intervals, Rows, Times, holding
from grpo_doctor.trace.model import Kind, Spans, Trace

NS_PER_S = 1e9
# A first step compiles, fills caches and starts loader processes. It counts as warm-up if it is
# clearly longer than its successors; 1.5 leaves the spread of generation lengths (10-30%) alone.
WARMUP_FACTOR = 1.5
# Fewer steps than this tell nothing about what is usual.
WARMUP_NEEDS_STEPS = 4
_KEPT = 3
_ABSENT = -1
# Of exit states: those in which a step may have been left by an error instead of ending.
_DIED = ("failed", "killed", "hung")
ERROR_PREFIX, CUT_PREFIX = "error/", "cut/"
_MOST_STEPS = 2.0**53  # beyond it a float64 has no units


@dataclass(frozen=True)
class Steps:
    """S steps of R ranks.

    `start_ns` and `end_ns` have shape (S, R); -1 where a rank has no such step. `closed` says that
    the step ended. `stepping` (R,) says which ranks have steps at all. `used` are the rows that
    means are over: closed on every stepping rank and after the warm-up.
    """

    numbers: NDArray[np.int64]
    start_ns: Times
    end_ns: Times
    closed: NDArray[np.bool_]
    stepping: NDArray[np.bool_]
    warmup: int
    used: Rows

    @property
    def seconds(self) -> NDArray[np.float64]:
        """Shape (S, R): how long each closed step took on each rank; NaN elsewhere."""
        return np.where(self.closed, (self.end_ns - self.start_ns) / NS_PER_S, np.nan)

    @property
    def used_seconds(self) -> NDArray[np.float64]:
        """Shape (used,): each used step's length, the mean over ranks."""
        if not len(self.used):
            return np.empty(0)
        mean: NDArray[np.float64] = self.seconds[self.used][:, self.stepping].mean(axis=1)
        return mean

    @property
    def bounds_ns(self) -> tuple[Times, Times]:
        """Shape (S,) each: when the first rank begins a step, and when the last one ends it.

        Of a step that no rank has: the largest number and 0.
        """
        has_step, never = self.start_ns >= 0, np.iinfo(np.int64).max
        start = np.where(has_step, self.start_ns, never).min(axis=1, initial=never)
        end = np.where(has_step, self.end_ns, 0).max(axis=1, initial=0)
        return start, end

    def used_cells(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of a table of shape (S, R, ...) the used steps and stepping ranks."""
        cells: NDArray[np.float64] = table[np.ix_(self.used, np.flatnonzero(self.stepping))]
        return cells

    @cached_property
    def _windows(self) -> dict[tuple[int, bool], tuple[Intervals, Rows]]:
        return {}

    def windows(self, rank: int, *, used: bool = False) -> tuple[Intervals, Rows]:
        """The closed steps of one rank (its column) in time order, and the step row of each."""
        known = self._windows.get((rank, used))
        if known is None:  # a report asks for those of each rank twenty times
            known = self._windows[rank, used] = self._windows_of(rank, used=used)
        return known

    def _windows_of(self, rank: int, *, used: bool) -> tuple[Intervals, Rows]:
        rows = np.flatnonzero(self.closed[:, rank])
        if used:
            rows = np.intersect1d(rows, self.used, assume_unique=True)
        rows = rows[np.argsort(self.start_ns[rows, rank], kind="stable")]
        start, end = self.start_ns[rows, rank], self.end_ns[rows, rank]
        if len(rows):  # damaged input: a step that began within another takes over
            end = np.minimum(end, np.append(start[1:], end[-1]))
        filled = end > start
        return Intervals(start[filled], end[filled]), rows[filled]

    def of(self, rank: Rows, moment_ns: Times, *, used: bool = False) -> Rows:
        """The row of the closed step in which each moment of a rank (its column) lies; -1: none."""
        step = np.full(len(rank), -1, dtype=np.intp)
        order = np.argsort(rank, kind="stable")
        edges = np.searchsorted(rank[order], np.arange(len(self.stepping) + 1))
        for column in np.flatnonzero(np.diff(edges)).tolist():
            mine = order[edges[column] : edges[column + 1]]
            windows, rows = self.windows(column, used=used)
            step[mine] = np.r_[rows, -1][holding(windows, moment_ns[mine])]
        return step


def find_steps(trace: Trace, ranks: Sequence[RankRows]) -> Steps:
    """Read the step spans of all ranks."""
    spans = trace.spans
    step_rows = [main.rows[_is_step(spans, main.rows)] for main in ranks]
    every = np.concatenate(step_rows) if step_rows else np.empty(0, dtype=np.intp)
    numbers = np.unique(spans.value[every].astype(np.int64))
    shape = (len(numbers), len(ranks))
    start, end = np.full(shape, _ABSENT, np.int64), np.full(shape, _ABSENT, np.int64)
    closed = np.zeros(shape, np.bool_)
    for column, rows in enumerate(step_rows):
        row = np.searchsorted(numbers, spans.value[rows].astype(np.int64))
        start[row, column], end[row, column] = spans.start_ns[rows], spans.end_ns[rows]
        closed[row, column] = ~spans.open[rows] & (spans.end_ns[rows] > spans.start_ns[rows])
    _open_what_was_cut_short(trace, ranks, start, end, closed)
    stepping = (start != _ABSENT).any(axis=0)
    complete = np.flatnonzero(closed[:, stepping].all(axis=1) & stepping.any())
    used = np.ix_(complete, np.flatnonzero(stepping))
    warmup = warmup_steps((end - start)[used].mean(axis=1) / NS_PER_S) if len(complete) else 0
    return Steps(numbers, start, end, closed, stepping, warmup, complete[warmup:])


def _open_what_was_cut_short(
    trace: Trace, ranks: Sequence[RankRows], start: Times, end: Times, closed: NDArray[np.bool_]
) -> None:
    """A step did not end, it was ended, where an exception left it, such as that of Ctrl-C: an
    unwinding stack closes its spans anyway. The last step of a rank also where the run was
    ended for hanging, or where an error that ended the run lies in it."""
    for rank, moment_ns, _ in noted(trace, CUT_PREFIX):
        for column in (c for c, main in enumerate(ranks) if main.rank == rank):
            inside = (start[:, column] <= moment_ns) & (moment_ns <= end[:, column])
            closed[inside, column] = False
    state = trace.run.exit.state
    if state not in _DIED or not len(start):
        return
    errors = [] if state == "hung" else sorted(noted(trace, ERROR_PREFIX))
    errors_ns = {rank: moment_ns for rank, moment_ns, _ in errors}
    for column, main in enumerate(ranks):
        last = int(start[:, column].argmax())
        begin_ns, finish_ns = start[last, column], end[last, column]
        failed = main.rank in errors_ns and begin_ns <= errors_ns[main.rank] <= finish_ns
        if state == "hung" or failed:
            closed[last, column] = False


def noted(trace: Trace, prefix: str) -> list[tuple[int, int, str]]:
    """The rank and the moment of each instant whose name begins so, and the rest of its name."""
    spans = trace.spans
    names = [number for number, name in enumerate(trace.names) if name.startswith(prefix)]
    rows = np.flatnonzero((spans.kind == Kind.INSTANT) & np.isin(spans.name, names))
    ranks = {process.index: process.rank for process in trace.processes}
    return [
        (rank, int(spans.start_ns[row]), trace.names[spans.name[row]].removeprefix(prefix))
        for row in rows
        if (rank := ranks.get(int(spans.process[row]))) is not None
    ]


def warmup_steps(seconds: NDArray[np.float64]) -> int:
    """Return how many leading steps are warm-up.

    A step is, while it takes over 1.5 times the median of all later ones and is longer than 90% of
    them: a run that generates every k-th step has steps of two lengths, and its first is no
    exception. At least three steps are kept; fewer than four steps have no warm-up.
    """
    if len(seconds) < WARMUP_NEEDS_STEPS:
        return 0
    for count in range(len(seconds) - _KEPT):
        later = seconds[count + 1 :]
        usual = seconds[count] <= WARMUP_FACTOR * np.median(later)
        if usual or seconds[count] <= np.percentile(later, 90):
            return count
    return len(seconds) - _KEPT


def _is_step(spans: Spans, rows: Rows) -> NDArray[np.bool_]:
    readable = np.abs(spans.value[rows]) < _MOST_STEPS  # also false for NaN
    is_step: NDArray[np.bool_] = (spans.kind[rows] == Kind.STEP) & readable
    return is_step
