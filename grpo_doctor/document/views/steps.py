"""Steps, each by itself or several together: buckets of steps, ranks by step.

The mean of each phase over all buckets adds up to that of the summary.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis import Analysis, Table
from grpo_doctor.analysis.regimes import KINDS
from grpo_doctor.document.numbers import SECONDS_DIGITS, column, number, seconds
from grpo_doctor.phases import PHASES, UNATTRIBUTED
from grpo_doctor.trace.intervals import Rows
from grpo_doctor_reports.schema import views
from grpo_doctor_reports.schema.part import Numbers


def slowest_of_each(values: NDArray[np.float64], limit: int) -> NDArray[np.intp]:
    """Rows of the largest value in each of at most `limit` buckets, ascending; NaN is smallest."""
    if len(values) <= limit:
        return np.arange(len(values))
    edges = np.linspace(0, len(values), limit + 1).astype(np.intp)
    finite = np.nan_to_num(values, nan=-1.0)
    pairs = itertools.pairwise(edges.tolist())
    return np.array([first + finite[first:end].argmax() for first, end in pairs], dtype=np.intp)


def known_mean(values: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Return the mean of what is known; NaN where nothing is."""
    is_known = np.isfinite(values)
    count = is_known.sum(axis=axis)
    total = np.where(is_known, values, 0.0).sum(axis=axis)
    mean: NDArray[np.float64] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return mean


MAX_STEP_BUCKETS = 1000
# Of ranks times buckets: each has a number per phase, and the page stays below 2.5 MB.
MAX_CELLS = 4_000
MAX_LANES = 64
# A lane is at most as many pixels wide.
_MOST_LANE_BUCKETS = 500
# 10 us of a step: what a lane of a few pixels can show, and sums stay right to 0.01%.
_LANE_DIGITS = 5
_STEADY = KINDS[0]
_NAMES = (*PHASES, UNATTRIBUTED)


@dataclass(frozen=True, slots=True)
class _Groups:
    """Rows of the steps in the order of their groups, and where each group begins."""

    rows: Rows
    begins: Rows

    def means(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return means over each group's steps, axis 0, of what is known; NaN where nothing is."""
        chosen = table[self.rows]
        is_known = np.isfinite(chosen)
        total = np.add.reduceat(np.where(is_known, chosen, 0.0), self.begins, axis=0)
        count = np.add.reduceat(is_known, self.begins, axis=0, dtype=np.int64)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """First and beyond of each group, in `rows`."""
        return list(itertools.pairwise([*self.begins.tolist(), len(self.rows)]))


def step_buckets(analysis: Analysis) -> views.StepBuckets:
    """Means over ranks: each step by itself, or several together where there are too many."""
    groups = _groups(analysis, MAX_STEP_BUCKETS)
    if not len(groups.rows):
        return views.StepBuckets()
    columns = np.flatnonzero(analysis.steps.stepping)
    lengths = known_mean(analysis.steps.seconds[:, columns], axis=1)
    longest = np.nan_to_num(lengths, nan=-1.0)
    worst = [groups.rows[a:b][longest[groups.rows[a:b]].argmax()] for a, b in groups.bounds]
    busiest = slowest_columns(analysis)
    phases = known_mean(analysis.seconds[:, columns], axis=1)
    steady = analysis.regimes.rows(KINDS.index(_STEADY))
    among = steady if len(steady) else analysis.steps.used
    return views.StepBuckets(
        **_shared(analysis, groups),
        seconds=column(groups.means(lengths)),
        worst_seconds=column(lengths[worst]),
        worst_step=analysis.steps.numbers[worst].tolist(),
        worst_rank=[analysis.ranks[busiest[row]] if busiest[row] >= 0 else None for row in worst],
        phase_seconds=_by_phase(groups, phases),
        wait_seconds=_by_phase(groups, known_mean(analysis.waited[:, columns], axis=1)),
        median_seconds=number(float(np.median(lengths[among]))) if len(among) else None,
        median_phase_seconds={
            name: round(float(np.median(phases[among, code])), SECONDS_DIGITS)
            for code, name in enumerate(_NAMES)
            if len(among) and np.nansum(phases[among, code]) > 0
        },
    )


def rank_buckets(analysis: Analysis) -> views.RankBuckets:
    """Return means of each rank: fewer buckets the more ranks there are."""
    columns = np.flatnonzero(analysis.steps.stepping)
    work = known_mean(analysis.accounting.work[:, columns], axis=0)
    columns = columns[slowest_of_each(work, MAX_LANES)]
    limit = min(_MOST_LANE_BUCKETS, MAX_CELLS // max(1, len(columns)))
    groups = _groups(analysis, limit)
    if not len(groups.rows):
        return views.RankBuckets()
    return views.RankBuckets(
        **_shared(analysis, groups),
        ranks=[analysis.ranks[c] for c in columns],
        phase_seconds=_by_rank_and_phase(groups, analysis.seconds[:, columns]),
        wait_seconds=_by_rank_and_phase(groups, analysis.waited[:, columns]),
    )


def slowest_columns(analysis: Analysis) -> NDArray[np.intp]:
    """The column of the rank with the most own work in each step; -1 where no rank ended it, and
    where there is but one."""
    columns = np.flatnonzero(analysis.steps.stepping)
    work = analysis.accounting.work[:, columns]
    if len(columns) < 2:
        return np.full(len(work), -1)
    is_known = np.isfinite(work)
    busiest = columns[np.where(is_known, work, -np.inf).argmax(axis=1)]
    return np.where(is_known.any(axis=1), busiest, -1)


def _groups(analysis: Analysis, limit: int) -> _Groups:
    """Return about `limit` groups of neighboring steps; used and excluded steps never mix."""
    steps = analysis.steps
    started = np.flatnonzero((steps.start_ns >= 0).any(axis=1))
    start_ns, _ = steps.bounds_ns
    rows = started[np.argsort(start_ns[started], kind="stable")]
    bucket = np.arange(len(rows)) * min(limit, len(rows)) // max(1, len(rows))
    key = 2 * bucket + np.isin(rows, steps.used)
    order = np.argsort(key, kind="stable")
    return _Groups(rows[order], np.flatnonzero(np.diff(key[order], prepend=-1)))


def _shared(analysis: Analysis, groups: _Groups) -> dict[str, Any]:
    steps = analysis.steps
    start_ns, end_ns = (bound[groups.rows] for bound in steps.bounds_ns)
    numbers = steps.numbers[groups.rows]
    used = np.isin(groups.rows, steps.used)
    kinds = [KINDS[kind] for kind in analysis.regimes.kind[groups.rows]]
    bounds = groups.bounds
    return {
        "first": [int(numbers[a]) for a, _ in bounds],
        "last": [int(numbers[b - 1]) for _, b in bounds],
        "steps": [b - a for a, b in bounds],
        "used": [bool(used[a]) for a, _ in bounds],
        "kind": [_kind_of(kinds[a:b]) for a, b in bounds],
        "start_s": [seconds(start_ns[a:b].min()) for a, b in bounds],
        "end_s": [seconds(end_ns[a:b].max()) for a, b in bounds],
    }


def _kind_of(kinds: list[str]) -> str:
    special = Counter(kind for kind in kinds if kind != _STEADY)
    return special.most_common(1)[0][0] if special else _STEADY


def _by_phase(groups: _Groups, table: Table) -> dict[str, Numbers]:
    """Of a table of steps and phases, the phases that take any time."""
    means = groups.means(table)
    present = np.nansum(means, axis=0) > 0
    return {name: column(means[:, c]) for c, name in enumerate(_NAMES) if present[c]}


def _by_rank_and_phase(groups: _Groups, table: Table) -> dict[str, list[Numbers]]:
    means = groups.means(table)
    present = np.nansum(means, axis=(0, 1)) > 0
    return {
        name: [column(row, _LANE_DIGITS) for row in means[:, :, c].T]
        for c, name in enumerate(_NAMES)
        if present[c]
    }


def step_entries(analysis: Analysis) -> list[views.StepEntry]:
    """Return all steps; of many, the slowest of each bucket."""
    steps = analysis.steps
    columns = np.flatnonzero(steps.stepping)
    if not (steps.start_ns >= 0).any():
        return []
    start_ns, end_ns = steps.bounds_ns
    lengths, slowest = known_mean(steps.seconds[:, columns], axis=1), slowest_columns(analysis)
    rows = slowest_of_each(lengths, MAX_STEPS)
    return [
        views.StepEntry(
            number=int(steps.numbers[row]),
            start_s=seconds(start_ns[row]),
            end_s=seconds(end_ns[row]),
            seconds=number(lengths[row]),
            kind=KINDS[analysis.regimes.kind[row]],
            slowest_rank=analysis.ranks[int(slowest[row])] if slowest[row] >= 0 else None,
        )
        for row in rows[np.argsort(start_ns[rows], kind="stable")]
    ]


MAX_STEPS = 1000
MAX_RANKS = 64
# Cells are drawn a few pixels wide; 0.1 ms is below what shows, and keeps the document small.
_CELL_DIGITS = 4


def heatmap(analysis: Analysis) -> views.Heatmap:
    """Return all steps and ranks; of many, the slowest of each bucket, so that no outlier is lost.

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
    return views.Heatmap(
        ranks=[analysis.ranks[i] for i in columns],
        steps=analysis.steps.numbers[rows].tolist(),
        step_seconds=_cells_of(seconds[cells]),
        phase_seconds=_cells_by_phase(phases),
        wait_seconds=_cells_of(waited.sum(axis=2)),
        phase_wait_seconds=_cells_by_phase(waited),
        steps_total=len(seconds),
        means=views.RankMeans(
            ranks=[analysis.ranks[c] for c in stepping],
            own_seconds=column(own_means),
            wait_seconds=column(known_mean(every_wait, axis=0)),
        ),
    )


def _cells_by_phase(table: NDArray[np.float64]) -> dict[str, list[Numbers]]:
    return {
        phase: _cells_of(table[:, :, code])
        for code, phase in enumerate(PHASES)
        if np.nansum(table[:, :, code]) > 0
    }


def _cells_of(table: NDArray[np.float64]) -> list[Numbers]:
    return [column(rank, _CELL_DIGITS) for rank in table.T]
