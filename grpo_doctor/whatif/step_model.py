"""A run's own steps as work between barriers, so that a change can be replayed.

The model: ranks work by themselves until all of them have entered a collective; the slowest decides
when that is. So a step takes the sum, over its stretches between barriers, of the largest rank's
work in the stretch::

    step = sum over stretches k of  max over ranks r of  sum over spans s of work[k, r, s]

Waiting is not work: it follows from the maximum. Transfer, the time from the last arrival to the
end of a collective, is work of the span it lies in. Without recorded collectives a step is one
stretch. Asynchronous collectives and those of a part of the ranks are not barriers; what that costs
in accuracy shows when the unedited model is replayed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis import Analysis
from grpo_doctor.analysis.intervals import Intervals, Rows, covers, cut, gaps, innermost, overlaps
from grpo_doctor.analysis.steps import NS_PER_S
from grpo_doctor.phases import UNATTRIBUTED
from grpo_doctor.trace.model import Kind
from grpo_doctor.whatif.edits import belongs

# 127 sets of fixes are replayed for one report; a replay of so many rows takes some milliseconds.
MOST_ROWS = 100_000
# Of so many steps the mean is known to two percent where they differ by a tenth.
LEAST_STEPS = 30


@dataclass(frozen=True, slots=True)
class StepModel:
    """Work of U steps and R stepping ranks, in K stretches.

    Rows (n,): `stretch`, `rank` (column), `name` (of the innermost span, an index into `names`)
    and `seconds` of work. `step_of` (K,) says which step a stretch belongs to, and `between` (K,)
    between which barriers it lies: a step's end is none, so two steps may share the time between
    two barriers. `measured_s` (U,) is how long each step really took. `rows` are the steps' rows
    in the analysis; in a long run a sample.
    """

    ranks: tuple[int, ...]
    names: tuple[str, ...]
    measured_s: NDArray[np.float64]
    stretch: Rows
    rank: Rows
    name: Rows
    seconds: NDArray[np.float64]
    step_of: Rows
    between: Rows
    rows: Rows

    def part(self, phase: str) -> NDArray[np.bool_]:
        """Return which rows are of a phase, or of one span; shape (n,)."""
        chosen = np.array([belongs(phase, name) for name in self.names], dtype=np.bool_)
        return np.asarray(chosen[self.name])

    def work_s(self, phase: str) -> float:
        """Return seconds of work per step in a phase or span, the mean over ranks."""
        total = float(self.seconds[self.part(phase)].sum())
        return total / max(1, len(self.measured_s)) / max(1, len(self.ranks))

    @property
    def step_s(self) -> float:
        """The mean length of the steps; 0 without any."""
        return float(self.measured_s.mean()) if len(self.measured_s) else 0.0


def build_model(analysis: Analysis) -> StepModel:
    """Cut each rank's work in the used steps, or in a sample of them, at the barriers."""
    steps = analysis.steps
    columns = np.flatnonzero(steps.stepping)
    chosen = _sample(analysis)
    barriers, windows = analysis.waits.barriers_ns, analysis.used_windows
    # A step may end with its last barrier.
    pieces = cut(barriers[covers(windows, barriers) | np.isin(barriers, windows.end_ns)])
    names = (*analysis.trace.names, UNATTRIBUTED)
    works = [_rank_work(analysis, int(column), pieces, chosen, names) for column in columns]
    count = len(steps.numbers) + 1
    cells = [interval * count + step for interval, step, _, _ in works]
    stretches, every = np.unique(np.concatenate([*cells, _NO_ROWS]), return_inverse=True)
    used = np.full(count, -1, dtype=np.intp)
    used[chosen] = np.arange(len(chosen))
    sampled = np.searchsorted(steps.used, chosen)
    return StepModel(
        ranks=tuple(analysis.ranks[column] for column in columns),
        names=names,
        measured_s=analysis.step_seconds[sampled],
        stretch=every,
        rank=np.repeat(np.arange(len(works)), [len(cell) for cell in cells]),
        name=np.concatenate([*(name for _, _, name, _ in works), _NO_ROWS]),
        seconds=np.concatenate([*(seconds for _, _, _, seconds in works), np.empty(0)]),
        step_of=used[stretches % count],
        # Without a barrier nothing ties one step's ranks to the next step's.
        between=stretches // count if len(pieces) > 1 else np.arange(len(stretches)),
        rows=chosen,
    )


_NO_ROWS = np.empty(0, dtype=np.intp)


def _sample(analysis: Analysis) -> Rows:
    """Return the used steps, or as many drawn ones as keep the rows below `MOST_ROWS`."""
    used: Rows = analysis.steps.used
    spans = sum(len(main.rows) for main in analysis.mains)
    per_step = spans / max(1, len(analysis.steps.numbers))
    limit = max(LEAST_STEPS, int(MOST_ROWS / max(1.0, per_step)))
    if len(used) <= limit:
        return used
    drawn = np.random.default_rng(0).choice(len(used), limit, replace=False)
    return used[np.sort(drawn)]


def _rank_work(
    analysis: Analysis, column: int, pieces: Intervals, chosen: Rows, names: tuple[str, ...]
) -> tuple[Rows, Rows, Rows, NDArray[np.float64]]:
    """Return one rank's work by stretch: (piece, step row, name, seconds), each shape (n,)."""
    windows, row = analysis.steps.windows(column, used=True)
    sampled = np.isin(row, chosen)
    windows, row = windows.select(sampled), row[sampled]
    work = overlaps(windows, gaps(analysis.waits.per_rank[column]))
    stretches = overlaps(work.intervals, pieces)
    step = row[work.left[stretches.left]]
    spans, name_of = _named_pieces(analysis, column, windows)
    inside = overlaps(stretches.intervals, spans)
    length = np.bincount(inside.left, weights=inside.length_ns, minlength=len(step))
    outside_ns = stretches.length_ns - length
    outside = np.flatnonzero(outside_ns > 0)
    pieces_at = np.concatenate([inside.left, outside])
    name = np.concatenate([name_of[inside.right], np.full(len(outside), len(names) - 1)])
    nanoseconds = np.concatenate([inside.length_ns, outside_ns[outside]])
    # Many pieces of one span's name lie in one stretch: they are one row.
    count, width = len(analysis.steps.numbers) + 1, len(names)
    cell = (stretches.right[pieces_at] * count + step[pieces_at]) * width + name
    cells, group = np.unique(cell, return_inverse=True)
    seconds = np.bincount(group, weights=nanoseconds, minlength=len(cells)) / NS_PER_S
    where = cells // width
    return where // count, where % count, cells % width, seconds


def _named_pieces(analysis: Analysis, column: int, windows: Intervals) -> tuple[Intervals, Rows]:
    """The main thread's time by the innermost span of a phase, and that span's name; at least
    where the windows are."""
    spans, main = analysis.trace.spans, analysis.mains[column]
    rows = main.rows[(spans.kind[main.rows] == Kind.SPAN) & (main.phase >= 0)]
    if not len(windows):
        rows = rows[:0]
    window = np.searchsorted(windows.end_ns, spans.start_ns[rows], side="right")
    begins = np.r_[windows.start_ns, np.iinfo(np.int64).max]
    rows = rows[begins[window] < spans.end_ns[rows]]
    pieces, owner = innermost(spans.start_ns[rows], spans.end_ns[rows])
    return pieces, spans.name[rows][owner].astype(np.intp)
