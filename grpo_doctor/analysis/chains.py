"""Blame along a chain: a rank that comes late because it waited for another is not the culprit.

Ranks of one part of the job meet in groups of their own, so that a delay travels: rank 3 waits for
rank 2 in one group, and rank 0 then for rank 3 in another. Without rank 2's delay rank 3 had come
earlier by what it waited, and rank 0 had waited that much less.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grpo_doctor.analysis.collectives import Arrivals, Members, group_part
from grpo_doctor.analysis.waits import Claims, Waits
from grpo_doctor.trace.intervals import Rows, Times

# Each round follows every chain by one wait. Chains longer than this are cut, and what is left of
# them stays with the rank that was reached: 8 groups deep with 8 waits each are rare.
_ROUNDS = 64


@dataclass(frozen=True, slots=True)
class Shares:
    """Parts of the explained waiting, as rows of the claims: who waited, and in `root` the wait at
    the chain's end, whose culprit arose the delay; and how much it was."""

    claim: Rows
    root: Rows
    amount_ns: Times


def root_causes(waits: Waits, at_least_ns: float = 0.0) -> Shares:
    """Follow every claim to the ranks where its delay arose.

    A culprit's own wait counts if it ended since the collective of that group before this one, and
    the waiter took no part in it: else the waiter was held up there as well, and is over it. Waits
    below `at_least_ns` are not followed. Amounts of one claim sum up to its `explained_ns`.
    """
    claims = waits.claims
    if len(np.unique(group_part(waits.arrivals.key))) < 2:
        every = np.arange(len(claims.waiter))
        return Shares(every, every, claims.explained_ns)
    follow = _Follow(claims, waits.arrivals, waits.members)
    rows = np.arange(len(claims.waiter))
    noticeable = claims.explained_ns > at_least_ns
    negligible = rows[~noticeable]
    settled = [Shares(negligible, negligible, claims.explained_ns[negligible])]
    chased = rows[noticeable]
    active = _Active(chased, chased, claims.explained_ns[chased], follow.latest(chased))
    for _ in range(_ROUNDS):
        if not len(active.claim):
            break
        active, finished = follow.one_round(active)
        settled.append(finished)
    settled.append(Shares(active.claim, active.at, active.amount_ns))
    return Shares(
        np.concatenate([s.claim for s in settled]),
        np.concatenate([s.root for s in settled]),
        np.concatenate([s.amount_ns for s in settled]),
    )


@dataclass(frozen=True, slots=True)
class _Active:
    """Pieces still followed: the claim they belong to, the claim that was reached, how much, and
    the culprit's wait to look at next (a place in `_Follow.order`)."""

    claim: Rows
    at: Rows
    amount_ns: Times
    next: Rows

    def select(self, rows: Rows) -> _Active:
        return _Active(self.claim[rows], self.at[rows], self.amount_ns[rows], self.next[rows])


class _Follow:
    """Claims by waiter and end, to find what a culprit waited for before it came."""

    def __init__(self, claims: Claims, arrivals: Arrivals, members: Members) -> None:
        self.claims, self.members = claims, members
        self.order = np.lexsort((claims.end_ns, claims.waiter))
        self.waiter = claims.waiter[self.order]
        self.came_ns = arrivals.last_ns[claims.collective]
        self.since_ns = same_group_before(arrivals)[claims.collective]
        # One ascending number per (waiter, end), to search both at once.
        ends = np.unique(np.concatenate([claims.end_ns, self.came_ns]))
        self._ends, self._count = ends, len(ends) + 1
        self._sorted = self.waiter * self._count + np.searchsorted(ends, claims.end_ns[self.order])

    def latest(self, rows: Rows) -> Rows:
        """Return the place of the last wait of each claim's culprit before it came; -1 for none."""
        moment = np.searchsorted(self._ends, self.came_ns[rows])
        cell = self.claims.culprit[rows] * self._count + moment
        return np.searchsorted(self._sorted, cell, side="right") - 1

    def one_round(self, active: _Active) -> tuple[_Active, Shares]:
        """Look at one wait of each piece: what it explains moves on, what is left is looked at
        again, and pieces without such a wait are settled."""
        claims, latest = self.claims, active.next
        claim = self.order[np.maximum(latest, 0)]
        culprit = claims.culprit[active.at]
        valid = (
            (latest >= 0)
            & (claims.waiter[claim] == culprit)
            & (claims.end_ns[claim] > self.since_ns[active.at])
            & ~self.members.took_part(claims.collective[claim], claims.waiter[active.at])
        )
        ends = np.flatnonzero(~valid)
        settled = Shares(active.claim[ends], active.at[ends], active.amount_ns[ends])
        continuing = np.flatnonzero(valid)
        current = active.select(continuing)
        moved = np.minimum(current.amount_ns, claims.explained_ns[claim[continuing]])
        further = np.flatnonzero(moved > 0)
        remaining = np.flatnonzero(current.amount_ns > moved)
        reached = claim[continuing][further]
        return (
            _Active(
                np.concatenate([current.claim[further], current.claim[remaining]]),
                np.concatenate([reached, current.at[remaining]]),
                np.concatenate([moved[further], (current.amount_ns - moved)[remaining]]),
                np.concatenate([self.latest(reached), current.next[remaining] - 1]),
            ),
            settled,
        )


def same_group_before(arrivals: Arrivals) -> Times:
    """When the collective of the same group before each one began; the distant past for none."""
    group = group_part(arrivals.key)
    same = np.r_[False, group[1:] == group[:-1]]
    earlier = np.r_[0, arrivals.last_ns[:-1]]
    return np.where(same, earlier, np.iinfo(np.int64).min)
