"""Skew of collectives that return at once, from the entry times that flight recorders kept.

A rank does not block in such a call, so that nothing can be said of its wait; but which rank
entered last, and by how much, can. Only what the samples hold is seen: the newest collectives at
each look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from grpo_doctor.analysis.collectives import collective_keys, groups_of, match
from grpo_doctor.analysis.groups import GroupTime, words
from grpo_doctor.analysis.intervals import Rows, holding
from grpo_doctor.analysis.rows import COLUMNS, UNATTRIBUTED_CODE
from grpo_doctor.analysis.steps import NS_PER_S
from grpo_doctor.trace.entries import SOURCE
from grpo_doctor.trace.model import Kind

if TYPE_CHECKING:
    from grpo_doctor.analysis import Analysis


def entry_times(analysis: Analysis) -> list[GroupTime]:
    """Per covered step: how many, and from the first to the last entry; nothing is transfer.

    Phase and step are those of the last rank at its entry. Ranks whose clock nobody could align
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
    found = []
    for each in np.unique(cell[step >= 0]).tolist():
        chosen = (cell == each) & (step >= 0)
        covered = len(np.unique(step[chosen]))
        skew = float(skew_s[chosen].sum()) / covered
        last = int(np.bincount(arrivals.last_rank[chosen]).argmax())
        count = float(chosen.sum()) / covered
        found.append(
            GroupTime(*words(analysis, each), count, skew, skew, 0.0, analysis.ranks[last])
        )
    return sorted(found, key=lambda one: -one.skew_s)


def _rows(analysis: Analysis) -> tuple[Rows, Rows]:
    """Rows of entries, and the rank's column of each."""
    trace = analysis.trace
    sources = [args.get("source") == SOURCE for args in trace.args]
    if not any(sources):
        return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
    place = {rank: column for column, rank in enumerate(analysis.ranks)}
    columns = [
        place.get(p.rank, -1) if p.role == "trainer" and p.clock_error_ns is not None else -1
        for p in trace.processes
    ]
    entered = np.append(np.array(sources), False)[trace.spans.args]
    column = np.array(columns, dtype=np.intp)[trace.spans.process]
    rows = np.flatnonzero(entered & (trace.spans.kind == Kind.INSTANT) & (column >= 0))
    return rows, column[rows]
