"""Waiting told from working: what a rank spends in a collective before the last rank enters it.

Only what blocks the host is seen: an NCCL collective returns at once and its rank waits elsewhere,
so with NCCL this is a lower bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.collectives import Arrivals, Keys, collective_keys, match
from grpo_doctor.analysis.intervals import Intervals, Rows, Times, union
from grpo_doctor.analysis.rows import RankRows
from grpo_doctor.trace.model import Kind, Trace


@dataclass(frozen=True, slots=True)
class Claims:
    """One row per collective and rank that waited in it: who, for whom, when.

    `explained_ns` is the part that would vanish if the culprit came together with the next to
    last. `withheld` counts waits that are left out because clocks may be off by more.
    """

    waiter: Rows
    culprit: Rows
    start_ns: Times
    end_ns: Times
    explained_ns: Times
    withheld: int


@dataclass(frozen=True, slots=True)
class Waits:
    """What each rank waited: `per_rank[i]` is that of column i, `claims` says for whom.

    `barriers_ns` are the moments at which the last of all stepping ranks entered a collective of
    all of them. `collectives` counts those that could be matched.
    """

    per_rank: tuple[Intervals, ...]
    claims: Claims
    barriers_ns: Times
    collectives: int


def find_waits(trace: Trace, ranks: Sequence[RankRows], stepping: NDArray[np.bool_]) -> Waits:
    """Matches the collectives of all ranks' main threads; `stepping` (R,) are those with steps."""
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
    claims = _claims(trace, arrivals, rows[blocks], rank[blocks], key[blocks], ranks)
    return Waits(
        per_rank=tuple(
            union(claims.start_ns[mine], claims.end_ns[mine])
            for mine in (claims.waiter == column for column in range(len(ranks)))
        ),
        claims=claims,
        barriers_ns=_barriers(arrivals, asynchronous, int(stepping.sum())),
        collectives=len(arrivals.key),
    )


_NO_ROWS = np.empty(0, dtype=np.intp)


def _claims(  # noqa: PLR0913 - columns of one table
    trace: Trace, arrivals: Arrivals, rows: Rows, rank: Rows, key: Keys, ranks: Sequence[RankRows]
) -> Claims:
    place = arrivals.find(key)
    matched = place >= 0
    rows, rank, place = rows[matched], rank[matched], place[matched]
    culprit, last = arrivals.last_rank[place], arrivals.last_ns[place]
    start, left = trace.spans.start_ns[rows], trace.spans.end_ns[rows]
    end = np.minimum(left, last)
    length = end - start
    error = _clock_error_ns(trace, ranks)
    waited = (length > 0) & (rank != culprit)
    certain = length > error[rank] + error[culprit]
    # Who left before the last one came (a broadcast's early receiver) did not wait for that one.
    saved = np.maximum(end - np.maximum(start, arrivals.next_to_last_ns[place]), 0)
    saved = np.where(left >= last, saved, 0)
    claimed = waited & certain
    return Claims(
        waiter=rank[claimed],
        culprit=culprit[claimed],
        start_ns=start[claimed],
        end_ns=end[claimed],
        explained_ns=saved[claimed],
        withheld=int((waited & ~certain).sum()),
    )


def _barriers(arrivals: Arrivals, asynchronous: Keys, stepping: int) -> Times:
    """Ranks pass the launch of an asynchronous collective without stopping, so those are none."""
    everyone = (arrivals.ranks == stepping) & ~np.isin(arrivals.key, asynchronous)
    return np.unique(arrivals.last_ns[everyone])


def _clock_error_ns(trace: Trace, ranks: Sequence[RankRows]) -> NDArray[np.float64]:
    """Of each column, how far its clock may be off; infinite where nobody knows."""
    worst = {main.rank: 0.0 for main in ranks}
    for process in trace.processes:
        if process.rank in worst and process.role == "trainer":
            error = process.clock_error_ns
            worst[process.rank] = max(worst[process.rank], np.inf if error is None else error)
    return np.array([worst[main.rank] for main in ranks], dtype=np.float64)
