"""Who keeps the others waiting, and what that rank does longer than they."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.breakdown import Table
from grpo_doctor.analysis.intervals import Rows
from grpo_doctor.analysis.steps import NS_PER_S, Steps
from grpo_doctor.analysis.waits import Claims


@dataclass(frozen=True, slots=True)
class Blame:
    """Waiting within the used steps, by who caused it. R ranks, U used steps.

    `waited_s` sums all ranks' waits. `explained_s` (R,) is the part that would vanish if that rank
    came together with the next to last: a rank that is late only beside another one explains
    little. `late_share` (R,) is the share of used steps in which that part passes 1 % of the step.
    """

    waited_s: float
    explained_s: NDArray[np.float64]
    late_share: NDArray[np.float64]

    @property
    def shares(self) -> NDArray[np.float64]:
        """Shape (R,): the share of all waiting that each rank explains."""
        return self.explained_s / self.waited_s if self.waited_s else self.explained_s


_NOTICEABLE = 0.01


def find_blame(steps: Steps, claims: Claims) -> Blame:
    """Sums the claims within the used steps. Does not depend on the order of ranks."""
    ranks = len(steps.stepping)
    step = _step_of(steps, claims)
    within = step >= 0
    cell = step[within] * ranks + claims.culprit[within]
    explained = claims.explained_ns[within] / NS_PER_S
    size = len(steps.numbers) * ranks
    table = np.bincount(cell, weights=explained, minlength=size).reshape(len(steps.numbers), ranks)[
        steps.used
    ]
    noticeable = table > _NOTICEABLE * steps.used_seconds[:, None]
    return Blame(
        waited_s=float((claims.end_ns - claims.start_ns)[within].sum()) / NS_PER_S,
        explained_s=table.sum(axis=0),
        late_share=noticeable.mean(axis=0) if len(table) else np.zeros(ranks),
    )


def _step_of(steps: Steps, claims: Claims) -> Rows:
    """The used step in which each claim's wait began; -1 for none."""
    step = np.full(len(claims.waiter), -1, dtype=np.intp)
    for column in range(len(steps.stepping)):
        windows, rows = steps.windows(column, used=True)
        mine = np.flatnonzero(claims.waiter == column)
        if not len(windows) or not len(mine):
            continue
        place = np.searchsorted(windows.start_ns, claims.start_ns[mine], side="right") - 1
        inside = (place >= 0) & (claims.start_ns[mine] < windows.end_ns[place])
        step[mine[inside]] = rows[place[inside]]
    return step


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
