"""Wait time apart from work: what a rank spends in a collective before the last rank enters it.

What it spends there afterwards is transfer. Only what blocks the host is seen: an NCCL collective
returns at once and its rank waits elsewhere, so with NCCL this is a lower bound.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.collectives import Arrivals, Keys, Members, collective_keys, match
from grpo_doctor.analysis.rows import RankRows
from grpo_doctor.trace.intervals import Intervals, Rows, Times, subtract, union
from grpo_doctor.trace.model import Kind, Trace


@dataclass(frozen=True, slots=True)
class Claims:
    """One row per collective and rank that waited in it: who, for whom, when.

    `explained_ns` is the part that would vanish if the culprit came together with the next to
    last. `collective` is the row of `Waits.arrivals`. `withheld` counts waits that are left out
    because clocks may be off by more.
    """

    waiter: Rows
    culprit: Rows
    start_ns: Times
    end_ns: Times
    explained_ns: Times
    collective: Rows
    withheld: int


@dataclass(frozen=True, slots=True)
class Calls:
    """Every blocking stretch in a matched collective: the span's row, the rank's column and the
    row of `Waits.arrivals`. `transfer_ns` is when transfer begins: the last arrival, or the
    stretch's own start where that came later; the stretch's end if unknown."""

    row: Rows
    rank: Rows
    collective: Rows
    transfer_ns: Times


@dataclass(frozen=True, slots=True)
class Waits:
    """What each rank waited: `per_rank[i]` is that of column i, `claims` says for whom.

    `transfers[i]` is what it spent in collectives after the last rank had come. `barriers_ns` are
    the moments at which the last of all stepping ranks entered a collective of all of them.
    """

    per_rank: tuple[Intervals, ...]
    transfers: tuple[Intervals, ...]
    claims: Claims
    calls: Calls
    arrivals: Arrivals
    members: Members
    barriers_ns: Times

    @property
    def collectives(self) -> int:
        """How many collectives could be matched."""
        return len(self.arrivals.key)


def find_waits(trace: Trace, ranks: Sequence[RankRows], stepping: NDArray[np.bool_]) -> Waits:
    """Match the collectives of all ranks' main threads; `stepping` (R,) are those with steps."""
    kinds = [trace.spans.kind[main.rows] for main in ranks]
    chosen = [(k == Kind.COLLECTIVE) | (k == Kind.COLLECTIVE_WAIT) for k in kinds]
    rows = np.concatenate([m.rows[c] for m, c in zip(ranks, chosen, strict=True)] or [_NO_ROWS])
    rank = np.repeat(np.arange(len(ranks)), [int(c.sum()) for c in chosen])
    key = collective_keys(trace, rows)
    call = trace.spans.kind[rows] == Kind.COLLECTIVE
    arrivals = match(key[call], trace.spans.start_ns[rows[call]], rank[call])
    # An asynchronous call returns at once; its rank blocks in the later wait instead.
    asynchronous = np.unique(key[~call])
    blocks = ~call | ~np.isin(key, asynchronous)
    claims, calls = _claims(trace, arrivals, rows[blocks], rank[blocks], key[blocks], ranks)
    waited = _per_rank(claims.waiter, claims.start_ns, claims.end_ns, len(ranks))
    inside = _per_rank(calls.rank, calls.transfer_ns, trace.spans.end_ns[calls.row], len(ranks))
    return Waits(
        per_rank=waited,
        transfers=tuple(subtract(t, w).intervals for t, w in zip(inside, waited, strict=True)),
        claims=claims,
        calls=calls,
        arrivals=arrivals,
        members=Members.of(arrivals, key[call], rank[call], len(ranks)),
        barriers_ns=_barriers(arrivals, asynchronous, int(stepping.sum())),
    )


def _per_rank(column: Rows, start_ns: Times, end_ns: Times, ranks: int) -> tuple[Intervals, ...]:
    """Return what some stretches cover, by column; `column` (n,) is ascending."""
    edges = np.searchsorted(column, np.arange(ranks + 1))
    return tuple(
        union(start_ns[first:beyond], end_ns[first:beyond])
        for first, beyond in itertools.pairwise(edges.tolist())
    )


_NO_ROWS = np.empty(0, dtype=np.intp)


def _claims(  # noqa: PLR0913 - columns of one table
    trace: Trace, arrivals: Arrivals, rows: Rows, rank: Rows, key: Keys, ranks: Sequence[RankRows]
) -> tuple[Claims, Calls]:
    collective = arrivals.find(key)
    matched = collective >= 0
    rows, rank, collective = rows[matched], rank[matched], collective[matched]
    culprit, last = arrivals.last_rank[collective], arrivals.last_ns[collective]
    start, leave_ns = trace.spans.start_ns[rows], trace.spans.end_ns[rows]
    end = np.minimum(leave_ns, last)
    length = end - start
    error = _clock_error_ns(trace, ranks)
    waited = (length > 0) & (rank != culprit)
    certain = length > error[rank] + error[culprit]
    # Who left before the last one came (a broadcast's early receiver) did not wait for that one.
    saved = np.maximum(end - np.maximum(start, arrivals.next_to_last_ns[collective]), 0)
    saved = np.where(leave_ns >= last, saved, 0)
    claimed = waited & certain
    # A skew below the clocks' error leaves the stretch undivided: as good as all of it is transfer.
    # Where the error has no bound, nothing of it is told.
    begins = np.where(claimed, end, start)
    begins = np.where(np.isinf(error[rank] + error[culprit]), leave_ns, begins)
    claims = Claims(
        waiter=rank[claimed],
        culprit=culprit[claimed],
        start_ns=start[claimed],
        end_ns=end[claimed],
        explained_ns=saved[claimed],
        collective=collective[claimed],
        withheld=int((waited & ~certain).sum()),
    )
    return claims, Calls(rows, rank, collective, begins)


def _barriers(arrivals: Arrivals, asynchronous: Keys, stepping: int) -> Times:
    """Ranks pass the launch of an asynchronous collective without stopping, so those are none."""
    everyone = (arrivals.ranks == stepping) & ~np.isin(arrivals.key, asynchronous)
    return np.unique(arrivals.last_ns[everyone])


def _clock_error_ns(trace: Trace, ranks: Sequence[RankRows]) -> NDArray[np.float64]:
    """Return how far each column's clock may be off; infinite if unknown."""
    worst = {main.rank: 0.0 for main in ranks}
    for process in trace.processes:
        if process.rank in worst and process.carries_steps:
            error = process.clock.error_ns
            worst[process.rank] = max(worst[process.rank], np.inf if error is None else error)
    return np.array([worst[main.rank] for main in ranks], dtype=np.float64)
