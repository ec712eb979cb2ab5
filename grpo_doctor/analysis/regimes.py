"""Which steps are like each other: warm-up, checkpoints and evaluation apart from steady ones.

The means of a summary stay over all steps after the warm-up: a checkpoint every tenth step is part
of what a step costs, and its finding has to see it. What is separated here is shown next to them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.accounting import Table
from grpo_doctor.analysis.rows import CODES
from grpo_doctor.analysis.steps import Steps
from grpo_doctor.trace.intervals import Rows

STEADY, WARMUP, EVAL, CHECKPOINT, OPEN = range(5)
KINDS = ("steady", "warmup", "eval", "checkpoint", "open")
# Work that comes in more than half of the steps is their rhythm and sets none apart.
_SELDOM = 0.5
# Single long steps are the warm-up's business or chance; three of one level are a level.
_NEEDS_STEPS = 8
_BEFORE = 3
# A level before the change has to be this much above the one after, and nearly clear of its
# spread: generation lengths alone move single steps by 10-30%.
_HIGHER = 1.10
# A drift over the run is said above this share of the step, where chance makes it in one run of
# a thousand (Mann-Kendall, normal approximation).
_DRIFT = 0.10
_KENDALL_Z = 3.3
_MOST_POINTS = 400


@dataclass(frozen=True, slots=True)
class Regimes:
    """`kind` (S,) indexes KINDS. `steady_from` is the row of the first steady step, None where
    there is no steady state; `reason` says why, with numbers. `steady_s` is the mean length of
    the steady steps from there on."""

    kind: NDArray[np.int8]
    steady_from: int | None
    reason: str
    steady_s: float | None

    def rows(self, kind: int) -> Rows:
        """Return the rows of one kind."""
        return np.flatnonzero(self.kind == kind)


def find_regimes(steps: Steps, seconds: Table) -> Regimes:
    """Sort the steps; `seconds` has shape (S, R, COLUMNS)."""
    kind = _kinds(steps, seconds)
    usual = steps.used[np.isin(steps.used, np.flatnonzero(kind == STEADY))]
    lengths = steps.seconds[usual][:, steps.stepping].mean(axis=1) if len(usual) else np.empty(0)
    begins, reason = steady_state(lengths)
    if begins is None:
        return Regimes(kind, None, reason, None)
    row = int(usual[begins])
    if begins == 0 and steps.warmup:
        reason = f"after {steps.warmup} warm-up step{'s' * (steps.warmup > 1)} {reason}"
    reason = reason.replace(_AT, f"step {steps.numbers[row]}")
    return Regimes(kind, row, reason, float(lengths[begins:].mean()))


def _kinds(steps: Steps, seconds: Table) -> NDArray[np.int8]:
    kind = np.full(len(steps.numbers), OPEN, dtype=np.int8)
    complete = steps.closed[:, steps.stepping].all(axis=1) & steps.stepping.any()
    kind[complete] = WARMUP
    kind[steps.used] = STEADY
    for phase, code in (("eval", EVAL), ("checkpoint", CHECKPOINT)):
        holds = np.nansum(seconds[steps.used][:, :, CODES[phase]], axis=1) > 0
        if holds.any() and holds.mean() < _SELDOM:
            kind[steps.used[holds]] = code
    return kind


_AT = "{step}"


def steady_state(lengths: NDArray[np.float64]) -> tuple[int | None, str]:
    """From which of some step lengths on they stay at one level, and why; None: never."""
    if len(lengths) < _NEEDS_STEPS:
        few = f"only {len(lengths)} step{'s' * (len(lengths) != 1)} of the usual kind"
        return (0, f"{few}: too few to detect a change") if len(lengths) > 1 else (None, few)
    change = _change(lengths)
    after = lengths[change:]
    drift = _drift(after)
    if drift is not None:
        word = "longer" if drift > 0 else "shorter"
        return None, f"steps become {word} all along, by {abs(drift):.0%} over {len(after)} steps"
    if not change:
        return 0, "no level change and no trend among the steps"
    before_s, after_s = np.median(lengths[:change]), np.median(after)
    return change, f"before {_AT} steps take {before_s:.3g} s, from there on {after_s:.3g} s"


def _change(lengths: NDArray[np.float64]) -> int:
    """Where a higher level ends: the one cut, in the first half, that leaves the least spread
    about the two means; 0 where the levels are not clearly two."""
    count = len(lengths)
    cuts = np.arange(_BEFORE, count // 2 + 1)
    total, squares = np.cumsum(lengths), np.cumsum(lengths**2)
    left = squares[cuts - 1] - total[cuts - 1] ** 2 / cuts
    later_sum = total[-1] - total[cuts - 1]
    right = squares[-1] - squares[cuts - 1] - later_sum**2 / (count - cuts)
    cut = int(cuts[np.argmin(left + right)])
    before, after = lengths[:cut], lengths[cut:]
    higher = np.median(before) > _HIGHER * np.median(after)
    clear = np.percentile(before, 25) > np.percentile(after, 90)
    return cut if higher and clear else 0


def _drift(lengths: NDArray[np.float64]) -> float | None:
    """The change over all steps as a share of the median (Theil-Sen), if it is a trend; or None."""
    if len(lengths) < _NEEDS_STEPS:
        return None
    rows = np.unique(np.linspace(0, len(lengths) - 1, _MOST_POINTS).astype(np.intp))
    chosen, count = lengths[rows], len(rows)
    first, second = np.triu_indices(count, k=1)
    rise = chosen[second] - chosen[first]
    z = np.sign(rise).sum() / np.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    slope = float(np.median(rise / (rows[second] - rows[first])))
    share = slope * (len(lengths) - 1) / float(np.median(lengths))
    return share if abs(z) > _KENDALL_Z and abs(share) > _DRIFT else None
