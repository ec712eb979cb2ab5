"""Replays a run's steps with a change, and says how far the result can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.whatif.edits import Edit, factors
from grpo_doctor.whatif.model import StepModel

# Replays of a run from its own trace are published at 3-5 % error; beyond that the law does not
# describe this run, and a prediction would be a guess.
TOLERANCE = 0.05
# With fewer steps there is no spread to speak of.
NEEDS_STEPS = 3


@dataclass(frozen=True, slots=True)
class Prediction:
    """The change of the mean step time in percent, negative is faster; `basis` says from what.

    `edits` is the change itself, `at_least` a more cautious version of it, so that several
    predicted changes can be replayed together.
    """

    low: float
    mid: float
    high: float
    basis: str
    edits: tuple[Edit, ...] = ()
    at_least: tuple[Edit, ...] | None = None


@dataclass(frozen=True, slots=True)
class Withheld:
    """No prediction, and why."""

    reason: str


def replay(model: StepModel, edits: Sequence[Edit] = ()) -> NDArray[np.float64]:
    """The length of each used step under the law and some edits, in seconds; shape (steps,)."""
    ranks, stretches = max(1, len(model.ranks)), len(model.step_of)
    seconds = model.seconds * factors(edits, model.ranks)[model.rank, model.phase]
    cell = model.stretch * ranks + model.rank
    work = np.bincount(cell, weights=seconds, minlength=stretches * ranks)
    longest = work.reshape(stretches, ranks).max(axis=1)
    steps = np.bincount(model.step_of, weights=longest, minlength=len(model.measured_s))
    return steps.astype(np.float64)


def law_error(model: StepModel) -> float:
    """How far the unedited replay is off: the mean over steps of |replayed - measured| as a share
    of the measured mean; infinite without steps."""
    if not len(model.measured_s):
        return float("inf")
    off = np.abs(replay(model) - model.measured_s).mean()
    return float(off / model.measured_s.mean())


def predict(
    model: StepModel,
    edits: Sequence[Edit],
    what: str,
    *,
    at_least: Sequence[Edit] | None = None,
) -> Prediction | Withheld:
    """Replays before and after on each used step.

    `mid` is the change of the mean step; `low` and `high` are the changes of the 10th and 90th
    percentile step, each widened by the law's own error. An edit that only removes work is never
    predicted to cost time.

    Args:
        model: the run.
        edits: the change.
        what: the change in words, for the basis: "without its offload".
        at_least: a more cautious version of the change, which sets `high`.
    """
    steps = len(model.measured_s)
    if steps < NEEDS_STEPS:
        return Withheld(f"a prediction needs at least {NEEDS_STEPS} steps, this run has {steps}")
    error = law_error(model)
    if error > TOLERANCE:
        return Withheld(
            f"replaying this run unchanged is {100 * error:.0f} % off its measured step time, "
            "so a replayed change would be no better"
        )
    before = replay(model)
    change = _percent(replay(model, edits), before)
    cautious = _percent(replay(model, at_least), before) if at_least is not None else change
    low = float(np.percentile(change.per_step, 10)) - 100 * error
    high = float(np.percentile(cautious.per_step, 90)) + 100 * error
    if all(edit.factor <= 1 for edit in (*edits, *(at_least or ()))):
        high = min(high, 0.0)
    low, high = max(low, -100.0), max(high, cautious.mean)
    return Prediction(
        low=min(low, change.mean),
        mid=change.mean,
        high=high,
        basis=f"replay of this run's own {steps} steps {what}; "
        f"the replay of the unchanged run is {100 * error:.1f} % off",
        edits=tuple(edits),
        at_least=None if at_least is None else tuple(at_least),
    )


@dataclass(frozen=True, slots=True)
class _Change:
    mean: float
    per_step: NDArray[np.float64]


def _percent(after: NDArray[np.float64], before: NDArray[np.float64]) -> _Change:
    per_step = 100 * (after / np.maximum(before, 1e-12) - 1)
    return _Change(float(100 * (after.sum() / max(before.sum(), 1e-12) - 1)), per_step)
