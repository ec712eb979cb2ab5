"""Arithmetic of time intervals, vectorised: half-open, integer nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]
Rows = NDArray[np.intp]

_BEFORE = np.array([np.iinfo(np.int64).min // 2])
_AFTER = np.array([np.iinfo(np.int64).max // 2])
_ZERO = np.zeros(1, dtype=np.intp)


@dataclass(frozen=True, slots=True)
class Intervals:
    """Intervals [start, end): ascending, disjoint, none empty. Neighbors may touch."""

    start_ns: Times
    end_ns: Times

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def total_ns(self) -> int:
        """The time that they cover."""
        return int((self.end_ns - self.start_ns).sum())

    def select(self, rows: Rows | NDArray[np.bool_]) -> Intervals:
        """Some of them, in order."""
        return Intervals(self.start_ns[rows], self.end_ns[rows])


@dataclass(frozen=True, slots=True)
class Overlaps:
    """Where intervals of two sets meet: rows of the left and the right set, and the stretch."""

    left: Rows
    right: Rows
    start_ns: Times
    end_ns: Times

    @property
    def length_ns(self) -> Times:
        """How long each stretch is."""
        return self.end_ns - self.start_ns

    @property
    def intervals(self) -> Intervals:
        """The stretches themselves."""
        return Intervals(self.start_ns, self.end_ns)


def none() -> Intervals:
    """No intervals."""
    return Intervals(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def union(start_ns: Times, end_ns: Times) -> Intervals:
    """Return what any intervals, in any order, cover together; empty ones are left out."""
    filled = end_ns > start_ns
    order = np.argsort(start_ns[filled], kind="stable")
    start, end = start_ns[filled][order], end_ns[filled][order]
    if not len(start):
        return none()
    reached = np.maximum.accumulate(end)
    # `np.r_` costs 20 us a call: with a thousand ranks that is most of the time.
    beyond = np.flatnonzero(start[1:] > reached[:-1])
    begins = np.concatenate([_ZERO, beyond + 1])
    return Intervals(start[begins], reached[np.concatenate([beyond, [len(start) - 1]])])


def together(parts: Sequence[Intervals]) -> Intervals:
    """Return what any of some sets cover."""
    if not parts:
        return none()
    starts, ends = ([p.start_ns for p in parts], [p.end_ns for p in parts])
    return union(np.concatenate(starts), np.concatenate(ends))


def gaps(inside: Intervals) -> Intervals:
    """Everything outside, from before all time to after it; never empty stretches."""
    start = np.concatenate([_BEFORE, inside.end_ns])
    end = np.concatenate([inside.start_ns, _AFTER])
    filled = end > start
    return Intervals(start[filled], end[filled])


def overlaps(left: Intervals, right: Intervals) -> Overlaps:
    """Return every stretch that a left and a right interval share, ascending."""
    first = np.searchsorted(right.end_ns, left.start_ns, side="right")
    beyond = np.searchsorted(right.start_ns, left.end_ns, side="left")
    count = np.maximum(beyond - first, 0)
    rows_left = np.repeat(np.arange(len(left)), count)
    offset = np.arange(len(rows_left)) - np.repeat(np.cumsum(count) - count, count)
    rows_right = np.repeat(first, count) + offset
    return Overlaps(
        rows_left,
        rows_right,
        np.maximum(left.start_ns[rows_left], right.start_ns[rows_right]),
        np.minimum(left.end_ns[rows_left], right.end_ns[rows_right]),
    )


def intersect(left: Intervals, right: Intervals) -> Intervals:
    """Return what both cover."""
    return overlaps(left, right).intervals


def subtract(left: Intervals, right: Intervals) -> Overlaps:
    """What `left` covers and `right` does not; `Overlaps.left` says which interval it was."""
    return overlaps(left, gaps(right))


def holding(inside: Intervals, moments_ns: Times) -> Rows:
    """Return the row of the interval that holds each moment; -1 for none."""
    if not len(inside):
        return np.full(len(moments_ns), -1, dtype=np.intp)
    row = np.searchsorted(inside.start_ns, moments_ns, side="right") - 1
    return np.where((row >= 0) & (moments_ns < inside.end_ns[row]), row, -1)


def covers(inside: Intervals, moments_ns: Times) -> NDArray[np.bool_]:
    """Return which moments lie in any of the intervals."""
    return holding(inside, moments_ns) >= 0


def covered_before(inside: Intervals, moments_ns: Times) -> Times:
    """Return how much of all time before each moment the intervals cover."""
    if not len(inside):
        return np.zeros(len(moments_ns), dtype=np.int64)
    sums = np.cumsum(inside.end_ns - inside.start_ns)
    row = np.searchsorted(inside.start_ns, moments_ns, side="right") - 1
    beyond = np.maximum(inside.end_ns[row] - moments_ns, 0)
    return np.where(row >= 0, sums[row] - beyond, 0)


def covered_within(inside: Intervals, start_ns: Times, end_ns: Times) -> Times:
    """Return how much of each stretch the intervals cover."""
    return covered_before(inside, end_ns) - covered_before(inside, start_ns)


def cut(cuts_ns: Times) -> Intervals:
    """Return all time in pieces, cut at ascending moments."""
    moments = np.unique(cuts_ns)
    return Intervals(np.concatenate([_BEFORE, moments]), np.concatenate([moments, _AFTER]))


def innermost(start_ns: Times, end_ns: Times) -> tuple[Intervals, Rows]:
    """Cut time so that each piece belongs to the span that began last of those still open.

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

    Most rows end later than all before. Of others, if that is not the row before, it is beyond the
    row before's own answer: pointers are followed for all rows at once, which doubles their reach
    each round.
    """
    outer = np.arange(len(end)) - 1
    outer[1:][np.maximum.accumulate(end)[:-1] <= end[1:]] = -1
    rows = np.flatnonzero(outer >= 0)
    while len(rows):
        rows = rows[end[outer[rows]] <= end[rows]]
        outer[rows] = outer[outer[rows]]
        rows = rows[outer[rows] >= 0]
    return outer
