"""Who keeps the others waiting, and what that rank does longer than they."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.accounting import Table
from grpo_doctor.analysis.chains import root_causes
from grpo_doctor.analysis.steps import NS_PER_S, Steps
from grpo_doctor.analysis.waits import Waits


@dataclass(frozen=True, slots=True)
class Blame:
    """Waiting within the used steps, by who caused it. R ranks, U used steps.

    `waited_s` sums all ranks' waits. `explained_s` (R,) is the part that would vanish if that rank
    came together with the next to last: a rank that is late only beside another one explains
    little, and one that is late because it waited itself explains only the rest.
    `late_share` (R,) is the share of used steps in which that part passes 1% of the step.
    """

    waited_s: float
    explained_s: NDArray[np.float64]
    late_share: NDArray[np.float64]

    @property
    def shares(self) -> NDArray[np.float64]:
        """Shape (R,): the share of all waiting that each rank explains."""
        return self.explained_s / self.waited_s if self.waited_s else self.explained_s


_NOTICEABLE = 0.01
# Waits below a thousandth of a step are left with the last arriver: following them costs more than
# they can say.
_WORTH_FOLLOWING = 0.001


def find_blame(steps: Steps, waits: Waits) -> Blame:
    """Sums the claims within the used steps. Does not depend on the order of ranks."""
    ranks, claims = len(steps.stepping), waits.claims
    step = steps.of(claims.waiter, claims.start_ns, used=True)
    usual = float(steps.used_seconds.mean()) if len(steps.used) else 0.0
    shares = root_causes(waits, at_least_ns=_WORTH_FOLLOWING * usual * NS_PER_S)
    inside = step[shares.claim] >= 0
    cell = step[shares.claim[inside]] * ranks + shares.culprit[inside]
    explained = shares.amount_ns[inside] / NS_PER_S
    size = len(steps.numbers) * ranks
    table = np.bincount(cell, weights=explained, minlength=size).reshape(len(steps.numbers), ranks)[
        steps.used
    ]
    noticeable = table > _NOTICEABLE * steps.used_seconds[:, None]
    within = step >= 0
    return Blame(
        waited_s=float((claims.end_ns - claims.start_ns)[within].sum()) / NS_PER_S,
        explained_s=table.sum(axis=0),
        late_share=noticeable.mean(axis=0) if len(table) else np.zeros(ranks),
    )


def work_above_others(work: Table, rank: int) -> NDArray[np.float64]:
    """How much longer one rank works in each phase than its peers, in seconds per step.

    Args:
        work: shape (used steps, ranks, columns).
        rank: the column of the rank.

    Returns:
        Shape (columns,): the mean over steps of its work less the median of the others'.
    """
    others = np.delete(work, rank, axis=1)
    if not others.size:
        return np.zeros(work.shape[2])
    excess: NDArray[np.float64] = (work[:, rank] - np.median(others, axis=1)).mean(axis=0)
    return excess
