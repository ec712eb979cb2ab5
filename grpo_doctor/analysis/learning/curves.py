"""A metric over the steps that said it; NaN and infinities stay in, as facts."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.learning.names import spellings
from grpo_doctor.phases import phase_of
from grpo_doctor.trace.model import Trace

if TYPE_CHECKING:
    from grpo_doctor.analysis import Analysis

Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]

_COMPONENT = re.compile(r"rewards/(?P<name>.+?)(?P<part>/mean|/std)?")
_OF_ALL = "rewards/missing_ratio"
RATE = "train.learning_rate"
_RATES = ("learning_rate", "actor/lr", "actor_lr")


@dataclass(frozen=True, slots=True)
class Curve:
    """A metric under its framework's key: shapes (n,), only the steps that said it, ascending.
    `lost` steps had no number and were taken out."""

    key: str
    steps: NDArray[np.int64]
    values: Numbers
    lost: int = 0

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def bad(self) -> Mask:
        """Where the value is NaN or infinite."""
        bad: Mask = ~np.isfinite(self.values)
        return bad

    @property
    def finite(self) -> Curve:
        """The steps with a number."""
        return replace(self.where(~self.bad), lost=self.lost + int(self.bad.sum()))

    def where(self, rows: Mask) -> Curve:
        """Return the same metric at some of its steps."""
        return Curve(self.key, self.steps[rows], self.values[rows], self.lost)

    def before(self, step: int | None) -> Curve:
        """Return the steps before one; all, for None."""
        return self if step is None else self.where(self.steps < step)


def curve(trace: Trace, metric: str) -> Curve | None:
    """Return the canonical metric, under the first of its keys that any step said; None without."""
    for key in spellings(metric, trace.run.framework):
        recorded = curve_of_key(trace, key)
        if recorded is not None:
            return recorded
    return None


def curve_of_key(trace: Trace, key: str) -> Curve | None:
    """Return the metric of one framework's key."""
    metrics = trace.metrics
    values = metrics.values.get(key)
    if values is None:
        return None
    absent = metrics.absent.get(key)
    present = np.ones(len(values), np.bool_) if absent is None else ~absent
    return Curve(key, metrics.steps[present], values[present]) if present.any() else None


def highest_rate(trace: Trace) -> float | None:
    """Return the highest learning rate that any step logged; None where all said none, or 0."""
    logged = (curve_of_key(trace, key) for key in _RATES)
    found = [value for rate in logged if rate is not None for value in rate.finite.values.tolist()]
    return max(found, default=0.0) or None


def components(trace: Trace) -> dict[str, tuple[Curve, Curve | None]]:
    """Each reward function's mean and, where it is logged, deviation over the completions."""
    parts_of: dict[str, dict[str, Curve]] = {}
    for key in trace.metrics.values:
        match = _COMPONENT.fullmatch(key)
        part = curve_of_key(trace, key) if match and key != _OF_ALL else None
        if match and part is not None:
            parts_of.setdefault(match["name"], {})[match["part"] or "/mean"] = part
    return {
        name: (parts["/mean"], parts.get("/std"))
        for name, parts in parts_of.items()
        if "/mean" in parts
    }


def without_rollouts(analysis: Analysis) -> bool:
    """Return whether steps of training were recorded or logged, and no rollout or reward."""
    trace = analysis.trace
    phases = {phase_of(name) for name in trace.names}
    trains = trace.metrics.values if trace.run.origin else "train" in phases
    if not trains or not (trace.run.origin or len(analysis.steps.used)):
        return False
    rollouts = phases & {"rollout", "reward"} or trace.run.servers or trace.trajectories
    return not rollouts and curve(trace, "reward") is None
