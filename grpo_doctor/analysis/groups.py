"""Collectives by group, name and phase: how long, how unevenly reached, how long in transfer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.collectives import groups_of
from grpo_doctor.analysis.rows import COLUMNS, UNATTRIBUTED_CODE
from grpo_doctor.analysis.steps import NS_PER_S
from grpo_doctor.phases import PHASES, UNATTRIBUTED
from grpo_doctor.trace.intervals import Rows, holding

if TYPE_CHECKING:
    from grpo_doctor.analysis import Analysis


class GroupTime(NamedTuple):
    """Per used step: how many such collectives, seconds in them (mean of the ranks inside), from
    the first to the last arrival, and from the last arrival to the end. `last_rank` came last
    most often."""

    group: str
    name: str
    phase: str
    per_step: float
    seconds: float
    skew_s: float
    transfer_s: float
    last_rank: int


def group_times(analysis: Analysis) -> list[GroupTime]:
    """Return the matched blocking collectives of the used steps, longest first."""
    calls, arrivals, spans = analysis.waits.calls, analysis.waits.arrivals, analysis.trace.spans
    step = analysis.steps.of(calls.rank, spans.start_ns[calls.row], used=True)
    inside = np.flatnonzero(step >= 0)
    if not len(inside):
        return []
    row = calls.row[inside]
    kinds, kind = np.unique(_kind(analysis, row, calls.rank[inside]), return_inverse=True)
    # Each collective counts once, with the means of its members.
    cells, cell_of_call, members = np.unique(
        calls.collective[inside] * len(kinds) + kind, return_inverse=True, return_counts=True
    )
    once, of_kind = cells // len(kinds), cells % len(kinds)

    def per_step(values: NDArray[Any]) -> NDArray[np.float64]:
        total = np.bincount(of_kind, weights=values, minlength=len(kinds))
        return total / len(analysis.steps.used)

    def members_mean(values: NDArray[Any]) -> NDArray[np.float64]:
        return per_step(np.bincount(cell_of_call, weights=values) / members / NS_PER_S)

    ranks = len(analysis.ranks)
    size = len(kinds) * ranks
    last = np.bincount(of_kind * ranks + arrivals.last_rank[once], minlength=size)
    columns = zip(
        kinds.tolist(),
        per_step(np.ones(len(once))).tolist(),
        members_mean(spans.end_ns[row] - spans.start_ns[row]).tolist(),
        per_step((arrivals.last_ns - arrivals.first_ns)[once] / NS_PER_S).tolist(),
        members_mean(spans.end_ns[row] - calls.transfer_ns[inside]).tolist(),
        last.reshape(-1, ranks).argmax(axis=1).tolist(),
    )
    groups = groups_of(analysis.trace, _NO_ROWS)[1]
    times = [
        GroupTime(
            *_words(analysis, groups, cell),
            count,
            seconds,
            skew_s,
            transfer_s,
            analysis.ranks[rank],
        )
        for cell, count, seconds, skew_s, transfer_s, rank in columns
    ]
    return sorted(times, key=lambda each: -each.seconds)


def _kind(analysis: Analysis, row: Rows, rank: Rows) -> Rows:
    """Group, name and phase of each call as one number; `rank` (calls,) is ascending."""
    trace = analysis.trace
    start_ns = trace.spans.start_ns[row]
    phase = np.full(len(row), UNATTRIBUTED_CODE, dtype=np.intp)
    edges = np.searchsorted(rank, np.arange(len(analysis.ranks) + 1))
    for column, track in enumerate(analysis.tracks):
        mine = slice(edges[column], edges[column + 1])
        at = holding(track.pieces, start_ns[mine])
        phase[mine] = np.where(at >= 0, np.r_[track.phase, UNATTRIBUTED_CODE][at], phase[mine])
    group = groups_of(trace, row)[0]
    kind: Rows = (group * len(trace.names) + trace.spans.name[row]) * COLUMNS + phase
    return kind


_NO_ROWS = np.empty(0, dtype=np.intp)


def _words(analysis: Analysis, groups: tuple[str, ...], kind: int) -> tuple[str, str, str]:
    """Group, name and phase of (group * names + name) * COLUMNS + phase."""
    group_and_name, phase = divmod(kind, COLUMNS)
    group, name = divmod(group_and_name, len(analysis.trace.names))
    return groups[group], analysis.trace.names[name], (*PHASES, UNATTRIBUTED)[phase]
