"""Collectives by group, name and phase: how long, how unevenly reached, how long in transfer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.collectives import collective_keys, groups_of, match
from grpo_doctor.analysis.intervals import Rows, holding
from grpo_doctor.analysis.rows import COLUMNS, UNATTRIBUTED_CODE
from grpo_doctor.analysis.steps import NS_PER_S
from grpo_doctor.phases import PHASES, UNATTRIBUTED
from grpo_doctor.trace.entries import SOURCE
from grpo_doctor.trace.model import Kind

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
    times = [
        GroupTime(*words(analysis, cell), count, seconds, skew_s, transfer_s, analysis.ranks[rank])
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


def words(analysis: Analysis, kind: int) -> tuple[str, str, str]:
    """Group, name and phase of (group * names + name) * COLUMNS + phase."""
    group_and_name, phase = divmod(kind, COLUMNS)
    group, name = divmod(group_and_name, len(analysis.trace.names))
    groups = groups_of(analysis.trace, np.empty(0, dtype=np.intp))[1]
    return groups[group], analysis.trace.names[name], (*PHASES, UNATTRIBUTED)[phase]


def entry_times(analysis: Analysis) -> list[GroupTime]:
    """Per covered step: how many, and from the first to the last entry; nothing is transfer.

    Phase and step are those of the last rank at its entry. Ranks whose clock could not be aligned
    are left out.
    """
    rows, column = _rows(analysis)
    if not len(rows):
        return []
    spans = analysis.trace.spans
    key = collective_keys(analysis.trace, rows)
    kind = groups_of(analysis.trace, rows)[0] * len(analysis.trace.names) + spans.name[rows]
    arrivals = match(key, spans.start_ns[rows], column)
    if not len(arrivals.key):
        return []
    step = analysis.steps.of(arrivals.last_rank, arrivals.last_ns, used=True)
    phase = np.full(len(step), UNATTRIBUTED_CODE, dtype=np.intp)
    for rank in np.unique(arrivals.last_rank).tolist():
        mine = arrivals.last_rank == rank
        at = holding(analysis.tracks[rank].pieces, arrivals.last_ns[mine])
        phase[mine] = np.append(analysis.tracks[rank].phase, UNATTRIBUTED_CODE)[at]
    order = np.argsort(key, kind="stable")
    cell = kind[order[np.searchsorted(key[order], arrivals.key)]] * COLUMNS + phase
    skew_s = (arrivals.last_ns - arrivals.first_ns) / NS_PER_S
    times = []
    for each in np.unique(cell[step >= 0]).tolist():
        chosen = (cell == each) & (step >= 0)
        covered = len(np.unique(step[chosen]))
        skew = float(skew_s[chosen].sum()) / covered
        last = int(np.bincount(arrivals.last_rank[chosen]).argmax())
        count = float(chosen.sum()) / covered
        times.append(
            GroupTime(*words(analysis, each), count, skew, skew, 0.0, analysis.ranks[last])
        )
    return sorted(times, key=lambda time: -time.skew_s)


def _rows(analysis: Analysis) -> tuple[Rows, Rows]:
    """Return rows of entries, and the rank's column of each."""
    trace = analysis.trace
    sources = [args.get("source") == SOURCE for args in trace.args]
    if not any(sources):
        return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
    column_of = {rank: column for column, rank in enumerate(analysis.ranks)}
    columns = [
        column_of.get(p.rank, -1) if p.carries_steps and p.clock.error_ns is not None else -1
        for p in trace.processes
    ]
    entered = np.append(np.array(sources), False)[trace.spans.args]
    column = np.array(columns, dtype=np.intp)[trace.spans.process]
    rows = np.flatnonzero(entered & (trace.spans.kind == Kind.INSTANT) & (column >= 0))
    return rows, column[rows]
