"""Whether the reward rises, and whether it fell from a peak."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grpo_doctor.analysis.learning.curves import Curve, Numbers
from grpo_doctor.analysis.learning.shape import end_points, error_of_mean, rising, smooth
from grpo_doctor.findings.learning import known
from grpo_doctor.findings.view import RunView

# A rise is one by rank correlation with time, and by the difference between the last third and the
# first in their errors. Tenths, which ends are elsewhere, are too few points for rewards of small
# batches: of 100 steps of 16 completions, from 0.13 to 0.35, they saw no rise.
RISES = 0.30
ERRORS = 3.0
THIRD = 3
LEAST_POINTS = 5
LEAST_WINDOW = 10


def reward_rises(view: RunView, until: int | None = None) -> bool:
    """Whether the reward rises over the run, or still rose after step `until`."""
    found = known(view, "reward")
    if until is not None:
        found = found.where(found.steps >= until)
    width = max(LEAST_POINTS, len(found) // THIRD)
    if len(found) < 2 * width:
        return False
    first, last = found.values[:width], found.values[-width:]
    error = float(np.hypot(error_of_mean(first), error_of_mean(last)))
    return rising(found.values) >= RISES and float(last.mean() - first.mean()) > ERRORS * error


@dataclass(frozen=True, slots=True)
class Fall:
    """A reward that was higher: means over windows at the start, around the peak and at the end.

    `error` is the standard error of the difference between peak and end.
    """

    start: float
    peak: float
    peak_step: int
    end: float
    error: float


def fall_of(found: Curve) -> Fall:
    """Compares the highest window with the last one; windows are a tenth of the run, at least ten
    steps: of five, one in twenty healthy runs of 40 steps seemed to fall.
    """
    width = min(len(found), max(LEAST_WINDOW, end_points(len(found))))
    means = smooth(found.values, width)
    half = width // 2
    inner = slice(half, max(half + 1, len(found) - half))
    top = half + int(np.argmax(means[inner]))
    window: Numbers = found.values[max(0, top - half) : top + half + 1]
    last = found.values[-width:]
    rest = found.values - means
    error = float(
        np.hypot(
            max(error_of_mean(window), error_of_mean(rest) * np.sqrt(len(rest) / width)),
            max(error_of_mean(last), error_of_mean(rest) * np.sqrt(len(rest) / width)),
        )
    )
    return Fall(
        start=float(found.values[:width].mean()),
        peak=float(means[top]),
        peak_step=int(found.steps[top]),
        end=float(last.mean()),
        error=error,
    )
