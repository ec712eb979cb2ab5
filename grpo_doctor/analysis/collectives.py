"""Collectives matched over ranks: the k-th of a group on one rank is the k-th on every other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.trace.intervals import Rows, Times
from grpo_doctor.trace.model import Trace

Keys = NDArray[np.int64]
_SEQUENCE_BITS = 40
WORLD = "world"


@dataclass(frozen=True, slots=True)
class Arrivals:
    """K collectives that at least two ranks entered, ascending by `key`.

    When the first, the last and the rank before it came, which column was last, and how many came.
    """

    key: Keys
    first_ns: Times
    last_ns: Times
    next_to_last_ns: Times
    last_rank: Rows
    ranks: Rows

    def find(self, key: Keys) -> Rows:
        """Return the row of each key; -1 for those that are not here."""
        row = np.searchsorted(self.key, key)
        row[row == len(self.key)] = 0
        if not len(self.key):
            return np.full(len(key), -1, dtype=np.intp)
        return np.where(self.key[row] == key, row, -1)


@dataclass(frozen=True, slots=True)
class Members:
    """Who took part in which collective, for `took_part`."""

    ranks: int
    cells: Rows

    @classmethod
    def of(cls, arrivals: Arrivals, key: Keys, rank: Rows, ranks: int) -> Members:
        """From the key and the rank's column of each call, shapes (calls,)."""
        row = arrivals.find(key)
        matched = row >= 0
        cells = np.sort(row[matched] * ranks + rank[matched])
        return cls(ranks, cells[np.flatnonzero(np.diff(cells, prepend=-1))])

    def took_part(self, collective: Rows, rank: Rows) -> NDArray[np.bool_]:
        """Whether each rank entered each collective; rows of `Arrivals` and columns, (n,) each."""
        cell = collective * self.ranks + rank
        if not len(self.cells):
            return np.zeros(len(cell), dtype=np.bool_)
        index = np.minimum(np.searchsorted(self.cells, cell), len(self.cells) - 1)
        took_part: NDArray[np.bool_] = self.cells[index] == cell
        return took_part


def collective_keys(trace: Trace, rows: Rows) -> Keys:
    """Return a number per (group, restart of the job, sequence number), for rows of collectives."""
    spans = trace.spans
    group = groups_of(trace, rows)[0]
    restarts = _restarts(trace)
    number = group * (int(restarts.max(initial=0)) + 1) + restarts[spans.process[rows]]
    # A stranger's file may hold 1e308 here, which no integer can.
    value = np.clip(np.nan_to_num(spans.value[rows]), 0, 2.0**62)
    sequence = value.astype(np.int64) & ((1 << _SEQUENCE_BITS) - 1)
    keys: Keys = (number << _SEQUENCE_BITS) | sequence
    return keys


def groups_of(trace: Trace, rows: Rows) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the group of each row of collectives, as a place among the groups' names."""
    ids: dict[str, int] = {WORLD: 0}
    groups = [ids.setdefault(str(a.get("group", WORLD)), len(ids)) for a in trace.args]
    by_args = np.array([*groups, 0], dtype=np.int64)  # -1, no args: the last
    return by_args[trace.spans.args[rows]], tuple(ids)


def match(key: Keys, start_ns: Times, rank: Rows) -> Arrivals:
    """Group calls by key. Shapes (calls,): key, start and the rank's column of each call."""
    order = np.lexsort((start_ns, key))
    key, start_ns, rank = key[order], start_ns[order], rank[order]
    first = np.flatnonzero(np.r_[True, key[1:] != key[:-1]]) if len(key) else order
    last = np.r_[first[1:], len(key)] - 1 if len(key) else order
    several = last > first
    first, last = first[several], last[several]
    return Arrivals(
        key=key[last],
        first_ns=start_ns[first],
        last_ns=start_ns[last],
        next_to_last_ns=start_ns[last - 1],
        last_rank=rank[last],
        ranks=last - first + 1,
    )


def group_part(key: Keys) -> NDArray[np.int64]:
    """Return the group of each key; each restart has its own."""
    groups: NDArray[np.int64] = key >> _SEQUENCE_BITS
    return groups


def _restarts(trace: Trace) -> NDArray[np.int64]:
    """Of each process, how many processes its rank had before: sequences start again then."""
    earlier: dict[int, int] = {}
    result = np.zeros(len(trace.processes), dtype=np.int64)
    for process in sorted(trace.processes, key=lambda p: (p.start_ns or 0, p.index)):
        if process.carries_steps:
            result[process.index] = earlier.get(process.rank, 0)
            earlier[process.rank] = earlier.get(process.rank, 0) + 1
    return result
