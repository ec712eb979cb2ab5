"""What every moment of a step was: work, wait, transfer or idle; the four add up to the step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.breakdown import Table
from grpo_doctor.analysis.steps import Steps
from grpo_doctor.analysis.waits import Claims


@dataclass(frozen=True, slots=True)
class Accounting:
    """Seconds per step and rank, shape (S, R) each; NaN where a rank has no such step.

    `work` is what the rank does by itself, `wait` what it spends for another rank's sake,
    `transfer` is inside collectives that everybody has reached, `idle` has nothing open or waits
    for the engine.
    """

    work: Table
    wait: Table
    transfer: Table
    idle: Table

    def shares(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> dict[str, float]:
        """Each kind's share of rank time over some steps and ranks; {} without any time."""
        cells = np.ix_(rows, columns)
        kinds = {"work": self.work, "wait": self.wait, "transfer": self.transfer, "idle": self.idle}
        sums = {kind: float(np.nansum(table[cells])) for kind, table in kinds.items()}
        whole = sum(sums.values())
        return {kind: seconds / whole for kind, seconds in sums.items()} if whole > 0 else {}


def account(seconds: Table, waited: Table, transferred: Table, idled: Table) -> Accounting:
    """From tables by phase, shape (S, R, COLUMNS); the last three are parts of the first."""
    wait, transfer, idle = (table.sum(axis=2) for table in (waited, transferred, idled))
    return Accounting(seconds.sum(axis=2) - wait - transfer - idle, wait, transfer, idle)


def waited_for(steps: Steps, claims: Claims) -> NDArray[np.intp]:
    """Whose arrival each rank waited for longest in each step, shape (S, R): a column, -1: none.

    Waits count to the step in which they began.
    """
    ranks = len(steps.stepping)
    step = steps.of(claims.waiter, claims.start_ns)
    inside = np.flatnonzero(step >= 0)
    cell = (step[inside] * ranks + claims.waiter[inside]) * ranks + claims.culprit[inside]
    cells, group = np.unique(cell, return_inverse=True)
    length = (claims.end_ns - claims.start_ns)[inside]
    total = np.bincount(group, weights=length, minlength=len(cells))
    result = np.full(len(steps.numbers) * ranks, -1, dtype=np.intp)
    order = np.argsort(total, kind="stable")  # the longest is written last
    result[cells[order] // ranks] = cells[order] % ranks
    return result.reshape(len(steps.numbers), ranks)
