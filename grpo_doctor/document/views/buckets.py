"""Consecutive steps taken together: the mean of each phase, whose sum is that of the summary."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis import Analysis, Table
from grpo_doctor.analysis.intervals import Rows
from grpo_doctor.analysis.regimes import KINDS
from grpo_doctor.document.numbers import SECONDS_DIGITS, column, number, seconds
from grpo_doctor.document.views.spread import known_mean, slowest_of_each
from grpo_doctor.phases import PHASES, UNATTRIBUTED
from grpo_doctor_reports.schema.part import Numbers
from grpo_doctor_reports.schema.views import RankBuckets, StepBuckets

MAX_STEP_BUCKETS = 1000
# Of ranks times buckets: each has a number per phase, and the page stays below 2.5 MB.
MAX_CELLS = 10_000
MAX_LANES = 2_048
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
        """Means over each group's steps, axis 0, of what is known; NaN where nothing is."""
        chosen = table[self.rows]
        is_known = np.isfinite(chosen)
        total = np.add.reduceat(np.where(is_known, chosen, 0.0), self.begins, axis=0)
        count = np.add.reduceat(is_known, self.begins, axis=0, dtype=np.int64)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """First and beyond of each group, in `rows`."""
        return list(itertools.pairwise([*self.begins.tolist(), len(self.rows)]))


def step_buckets(analysis: Analysis) -> StepBuckets:
    """Means over ranks: each step by itself, or several together where there are too many."""
    groups = _groups(analysis, MAX_STEP_BUCKETS)
    if not len(groups.rows):
        return StepBuckets()
    columns = np.flatnonzero(analysis.steps.stepping)
    lengths = known_mean(analysis.steps.seconds[:, columns], axis=1)
    longest = np.nan_to_num(lengths, nan=-1.0)
    worst = [groups.rows[a:b][longest[groups.rows[a:b]].argmax()] for a, b in groups.bounds]
    busiest = slowest_columns(analysis)
    phases = known_mean(analysis.seconds[:, columns], axis=1)
    steady = analysis.regimes.rows(KINDS.index(_STEADY))
    among = steady if len(steady) else analysis.steps.used
    return StepBuckets(
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


def rank_buckets(analysis: Analysis) -> RankBuckets:
    """Means of each rank: fewer buckets the more ranks there are."""
    columns = np.flatnonzero(analysis.steps.stepping)
    work = known_mean(analysis.accounting.work[:, columns], axis=0)
    columns = columns[slowest_of_each(work, MAX_LANES)]
    limit = min(_MOST_LANE_BUCKETS, MAX_CELLS // max(1, len(columns)))
    groups = _groups(analysis, limit)
    if not len(groups.rows):
        return RankBuckets()
    return RankBuckets(
        **_shared(analysis, groups),
        ranks=[analysis.ranks[c] for c in columns],
        phase_seconds=_by_rank_and_phase(groups, analysis.seconds[:, columns]),
        wait_seconds=_by_rank_and_phase(groups, analysis.waited[:, columns]),
    )


def slowest_columns(analysis: Analysis) -> NDArray[np.intp]:
    """The column of the rank with the most own work in each step; -1 where no rank ended it."""
    columns = np.flatnonzero(analysis.steps.stepping)
    work = analysis.accounting.work[:, columns]
    is_known = np.isfinite(work)
    busiest = columns[np.where(is_known, work, -np.inf).argmax(axis=1)] if len(columns) else columns
    return np.where(is_known.any(axis=1), busiest, -1) if len(columns) else np.full(len(work), -1)


def _groups(analysis: Analysis, limit: int) -> _Groups:
    """At most about `limit` groups of neighbours; what the means are over is never with others."""
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
