"""Which of several nested spans is the innermost one, at each moment, without a loop per span."""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis.intervals import Intervals, Rows, Times, none


def innermost(start_ns: Times, end_ns: Times) -> tuple[Intervals, Rows]:
    """Cuts time so that each piece belongs to the span that began last of those still open.

    Args:
        start_ns: shape (n,), ascending; of equal starts the longest first.
        end_ns: shape (n,). Spans need not nest; empty ones own nothing.

    Returns:
        Pieces in which at least one span is open, and the row that owns each.
    """
    filled = np.flatnonzero(end_ns > start_ns)
    if not len(filled):
        return none(), filled
    start, end = start_ns[filled], end_ns[filled]
    # Faster than `np.unique`, which counts by hash first.
    moments = np.sort(np.concatenate([start, end]), kind="stable")
    moments = moments[np.flatnonzero(np.diff(moments, append=moments[-1] + 1))]
    begins = moments[:-1]
    owner = np.searchsorted(start, begins, side="right") - 1
    outer = _enclosing(end)
    over = np.flatnonzero(end[owner] <= begins)
    while len(over):
        owner[over] = outer[owner[over]]
        over = over[owner[over] >= 0]
        over = over[end[owner[over]] <= begins[over]]
    owned = owner >= 0
    return Intervals(begins[owned], moments[1:][owned]), filled[owner[owned]]


def _enclosing(end: Times) -> Rows:
    """Of each row, the nearest earlier one that ends later; -1 for none.

    If that is not the row before, it is beyond the row before's own answer: pointers are followed
    for all rows at once, which doubles their reach each round.
    """
    outer = np.arange(len(end)) - 1
    rows = np.flatnonzero(outer >= 0)
    while len(rows):
        rows = rows[end[outer[rows]] <= end[rows]]
        outer[rows] = outer[outer[rows]]
        rows = rows[outer[rows] >= 0]
    return outer
