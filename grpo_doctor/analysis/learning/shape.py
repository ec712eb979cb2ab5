"""What a curve does: its ends, its noise, its trend, and when something began."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from grpo_doctor.analysis.learning.curves import Curve, Mask, Numbers

# A normal distribution's standard deviation is 1.4826 median absolute deviations.
MAD_TO_SD = 1.4826
# Ends are averages over a tenth of the run: less is one unlucky batch, more hides a late collapse.
END_SHARE = 0.10
END_POINTS = 5
# "From then on" allows every fifth step to be otherwise.
LASTING = 0.80
LASTING_POINTS = 3
# NaN at one step may be a single token; at one in twenty it is the policy.
MAX_LOST = 0.05


def end_points(count: int) -> int:
    """Return how many points of a curve make up one of its ends."""
    return min(count, max(END_POINTS, round(END_SHARE * count)))


def ends(
    curve: Curve, average: Callable[[Numbers], np.floating[Any]] = np.median
) -> tuple[float, float]:
    """Return the average of the first and of the last tenth, of at least `END_POINTS` points."""
    width = end_points(len(curve))
    return float(average(curve.values[:width])), float(average(curve.values[-width:]))


def broken(curve: Curve) -> bool:
    """Whether a curve has so few numbers that no statistic of it means the run: over a twentieth
    of its steps have none, or nearly all of its first or last tenth."""
    bad, width = curve.bad, end_points(len(curve))
    if not bad.any():
        return False
    ends_lost = max(bad[:width].mean(), bad[-width:].mean()) >= LASTING
    return bool(ends_lost or bad.mean() > MAX_LOST)


def smooth(values: Numbers, width: int) -> Numbers:
    """Return the running mean over `width` points; shorter at the ends. Shape (n,)."""
    if width <= 1 or not len(values):
        return values
    half, sums = width // 2, np.r_[0.0, np.cumsum(values)]
    index = np.arange(len(values))
    low, high = np.maximum(index - half, 0), np.minimum(index + half + 1, len(values))
    result: Numbers = (sums[high] - sums[low]) / (high - low)
    return result


def error_of_mean(values: Numbers) -> float:
    """Return the standard error of these points' mean, with the correlation of neighbors."""
    count = len(values)
    if count < 3:
        return math.inf
    centered = values - values.mean()
    variance = float(centered @ centered) / (count - 1)
    if not variance:
        return 0.0
    alike = float(centered[1:] @ centered[:-1]) / float(centered @ centered)
    alike = min(0.9, max(0.0, alike))
    return math.sqrt(variance / count * (1 + alike) / (1 - alike))


def rising(values: Numbers) -> float:
    """Spearman's rank correlation with time: 1 rises throughout, -1 falls, 0 neither."""
    if len(values) < 3 or np.ptp(values) == 0:
        return 0.0
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(np.float64)
    return float(np.corrcoef(ranks, np.arange(len(values)))[0, 1])


def onset(curve: Curve, is_so: Mask) -> int | None:
    """The first step from which on `is_so` (shape (n,)) lasts to the end; None if it does not."""
    count = len(curve)
    if not is_so[-LASTING_POINTS:].any():
        return None
    share = np.cumsum(is_so[::-1])[::-1] / np.arange(count, 0, -1)
    rows = np.flatnonzero(is_so & (share >= LASTING))
    if not len(rows) or count - rows[0] < LASTING_POINTS:
        return None
    return int(curve.steps[rows[0]])
