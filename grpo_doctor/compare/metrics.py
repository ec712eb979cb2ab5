"""The step at which the training metrics of two runs diverge.

With the same seed and the same mathematics two runs are bit-identical: the first step that
differs is exact. Otherwise the noise of each curve is taken from its own step-to-step changes, and
the runs have diverged where their difference leaves that noise and does not come back.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.trace.model import Trace
from grpo_doctor_reports.schema.compare import MetricChange

NEEDS_POINTS = 8
IDENTICAL, SAME, PARTED, UNKNOWN = "identical", "same", "parted", "not enough evidence"
# Of a window's mean: four of its standard errors are passed by chance in one of 16,000.
_SIGMAS = 4.0
_WINDOW = 5
# How long the runs have to stay apart: a spike that returns is not a divergence.
_STAYS = 2 * _WINDOW
# Times on this machine are not learning curves.
_CLOCKS = ("time", "second", "runtime", "throughput", "num_tokens", "epoch", "learning_rate")
_DIGITS = 6


def metric_changes(
    before: Trace, after: Trace, *, bits: Callable[[str], float] = lambda _: math.inf
) -> list[MetricChange]:
    """Return every metric that both runs log, those that part first, in order of the step.

    Args:
        before: a recording.
        after: the one that is compared with it.
        bits: of how many common steps the bits of a metric count. All, as where two such runs are
            bit-identical; 0: the noise alone.
    """
    first, second = before.metrics, after.metrics
    _, left, right = np.intersect1d(first.steps, second.steps, return_indices=True)
    rows = [
        _change(
            name,
            first.steps[left],
            first.values[name][left],
            second.values[name][right],
            bits(name),
        )
        for name in sorted(set(first.values) & set(second.values))
        if not any(word in name.lower() for word in _CLOCKS)
    ]
    order = {PARTED: 0, UNKNOWN: 3, SAME: 2, IDENTICAL: 1}
    return sorted(rows, key=lambda m: (order[m.state], m.step or 0, m.name))


def _change(
    name: str,
    steps: NDArray[np.int64],
    a: NDArray[np.float64],
    b: NDArray[np.float64],
    bits: float,
) -> MetricChange:
    in_both = np.isfinite(a) & np.isfinite(b)
    steps, a, b = steps[in_both], a[in_both], b[in_both]
    state, step, note = _parting(steps, a, b, bits)
    return MetricChange(
        name=name,
        state=state,
        step=step,
        before=_last(a),
        after=_last(b),
        note=note,
    )


def _parting(
    steps: NDArray[np.int64], a: NDArray[np.float64], b: NDArray[np.float64], bits: float
) -> tuple[str, int | None, str]:
    differ = np.flatnonzero(a != b)
    if len(a) and not len(differ):
        return IDENTICAL, None, f"equal in all {len(a)} common steps"
    if len(a) < NEEDS_POINTS:
        return UNKNOWN, None, f"{len(a)} steps in common; needs {NEEDS_POINTS}"
    # Two curves that both stood still, at 0 or 1, say nothing of the same bits.
    if 2 <= differ[0] < bits and np.ptp(a[: differ[0]]) > 0:
        step = int(steps[differ[0]])
        return PARTED, step, f"bit-identical until step {int(steps[differ[0] - 1])}"
    return _from_noise(steps, a, b)


def _from_noise(
    steps: NDArray[np.int64], a: NDArray[np.float64], b: NDArray[np.float64]
) -> tuple[str, int | None, str]:
    noise = float(np.hypot(_noise(a), _noise(b)))
    difference = np.convolve(b - a, np.ones(_WINDOW) / _WINDOW, mode="valid")
    limit = _SIGMAS * noise / np.sqrt(_WINDOW)
    scale = max(float(np.abs(a).max()), float(np.abs(b).max()))
    away = np.sign(difference) * (np.abs(difference) > max(limit, 1e-9 * scale))
    last = len(away) - 1
    stays = min(_STAYS, len(away))
    if not away[last] or np.any(away[last - stays + 1 :] != away[last]):
        return SAME, None, "the difference is within the noise"
    back = np.flatnonzero(away != away[last])
    first = int(back[-1]) + 1 if len(back) else 0
    # The window that is apart for good ends where the difference has just shown.
    step = int(steps[first + _WINDOW - 1])
    if first == 0:
        return PARTED, int(steps[0]), "diverged from the first step"
    return PARTED, step, f"diverged permanently at step {step}"


def _noise(values: NDArray[np.float64]) -> float:
    """The standard deviation of a step around a slow curve, from changes between neighbors."""
    return float(1.4826 * np.median(np.abs(np.diff(values))) / np.sqrt(2))


def _last(values: NDArray[np.float64]) -> float | None:
    if not len(values):
        return None
    return float(f"{values[-_WINDOW:].mean():.{_DIGITS}g}")
