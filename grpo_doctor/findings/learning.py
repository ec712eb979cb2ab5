"""What the rules about learning share: their signals, and whether the reward rises or fell."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from grpo_doctor.analysis import Analysis
from grpo_doctor.analysis.learning import METRICS, curve
from grpo_doctor.analysis.learning.curves import Curve, Numbers
from grpo_doctor.analysis.learning.shape import end_points, error_of_mean, onset, rising, smooth
from grpo_doctor.findings.rule import Evidence
from grpo_doctor.findings.signals import Signal
from grpo_doctor.findings.view import RunView
from grpo_doctor.whatif import Withheld

# What a rollout whose reward teaches nothing has cost in vain.
LEARNING_PHASES = ("rollout", "reward", "logprob", "train")
# Rewards within this of each other are equal; the trainers' own advantage epsilon is 1e-4.
EQUAL = 1e-6
# What `flat_from` and `missing_share` read, beside the reward itself.
FLAT_REWARD = ("reward", "reward_std")
MISSING_RATIO = METRICS["reward_missing"][0].key
# A flat reward has to last this many steps to be called so.
FLAT_POINTS = 5
MOST_STEPS = 200
LEARNS_OTHERWISE = Withheld("it changes what is learned, not how long a step takes")


def metric(name: str, points: int = 1) -> Signal:
    """A training metric that enough steps have said as a number."""
    keys = {spelled.frameworks[0]: spelled.key for spelled in reversed(METRICS[name])}
    trl = keys.pop("trl")
    elsewhere = ", ".join(f"{framework} `{key}`" for framework, key in keys.items())
    names = f"metric `{trl}`" + (f" ({elsewhere})" if elsewhere else "")
    at = f" at {points} steps or more" if points > 1 else ""
    text = f"{names}{at}: grpo_doctor_probes.metrics(step, values), and a run that is long enough"
    return Signal(text, partial(_has, name, points), (name,))


def metric_even_nan(name: str) -> Signal:
    """A training metric that any step has said, be it NaN."""
    text = f"metric `{METRICS[name][0].key}`: grpo_doctor_probes.metrics(step, values) on rank 0"
    return Signal(text, lambda a: curve(a.trace, name) is not None, (name,))


def _has(name: str, points: int, analysis: Analysis) -> bool:
    metric_curve = curve(analysis.trace, name)
    return metric_curve is not None and len(metric_curve.finite) >= points


def finite(view: RunView, name: str) -> Curve:
    """The finite steps of a metric that the rule's signals asked for; empty without it."""
    metric_curve = view.metric(name)
    return metric_curve.finite if metric_curve is not None else _empty_curve(name)


def _empty_curve(name: str) -> Curve:
    return Curve(METRICS[name][0].key, np.empty(0, np.int64), np.empty(0))


def source(metric_curve: Curve) -> str:
    """Where a number is from, for evidence."""
    return f"{metric_curve.key}, {len(metric_curve)} steps"


def step_evidence(text: str, step: int | None, metric_curve: Curve) -> tuple[Evidence, ...]:
    """A step number, where there is such a step."""
    return () if step is None else (Evidence(text, step, "", source(metric_curve)),)


def from_step(metric_curve: Curve, step: int | None) -> tuple[int, ...]:
    """The numbers of the steps from an onset on, the first of many; empty for all."""
    if step is None:
        return ()
    return tuple(metric_curve.steps[metric_curve.steps >= step][:MOST_STEPS].tolist())


def learning_share(view: RunView) -> float:
    """The share of the step time that makes and uses rollouts; 0 where no time was recorded."""
    if not len(view.analysis.step_seconds):
        return 0.0
    return min(1.0, sum(view.share(phase) for phase in LEARNING_PHASES if view.times(phase)))


def flat_from(view: RunView) -> int | None:
    """The step from which on all completions of a step have one reward, the same in each step."""
    reward, spread = finite(view, "reward"), finite(view, "reward_std")
    shared = np.intersect1d(reward.steps, spread.steps)
    reward = reward.where(np.isin(reward.steps, shared))
    spread = spread.where(np.isin(spread.steps, shared))
    if len(shared) < FLAT_POINTS:
        return None
    last = float(reward.values[-1])
    level = np.abs(reward.values - last) <= EQUAL * max(1.0, abs(last))
    begins = onset(reward, level & (spread.values <= EQUAL))
    if begins is None or (reward.steps >= begins).sum() < FLAT_POINTS:
        return None
    return begins


def missing_share(view: RunView) -> Curve:
    """The share of completions without a reward at each step: 1 where the reward is NaN."""
    reward = view.metric("reward")
    if reward is None:
        return _empty_curve("reward")
    shares = reward.bad.astype(np.float64)
    partly = view.metric_called(MISSING_RATIO)
    if partly is not None:
        rows = np.isin(reward.steps, partly.steps)
        same = np.isin(partly.steps, reward.steps)
        shares[rows] = np.maximum(shares[rows], np.nan_to_num(partly.values[same]))
    return Curve(reward.key, reward.steps, shares)


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
    reward = finite(view, "reward")
    if until is not None:
        reward = reward.where(reward.steps >= until)
    width = max(LEAST_POINTS, len(reward) // THIRD)
    if len(reward) < 2 * width:
        return False
    first, last = reward.values[:width], reward.values[-width:]
    error = float(np.hypot(error_of_mean(first), error_of_mean(last)))
    return rising(reward.values) >= RISES and float(last.mean() - first.mean()) > ERRORS * error


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


def fall_of(reward: Curve) -> Fall:
    """Compares the highest window with the last one; windows are a tenth of the run, at least ten
    steps: of five, one in twenty healthy runs of 40 steps seemed to fall.
    """
    width = min(len(reward), max(LEAST_WINDOW, end_points(len(reward))))
    means = smooth(reward.values, width)
    half = width // 2
    inner = slice(half, max(half + 1, len(reward) - half))
    top = half + int(np.argmax(means[inner]))
    window: Numbers = reward.values[max(0, top - half) : top + half + 1]
    last = reward.values[-width:]
    residuals = reward.values - means
    error = float(
        np.hypot(
            max(error_of_mean(window), error_of_mean(residuals) * np.sqrt(len(residuals) / width)),
            max(error_of_mean(last), error_of_mean(residuals) * np.sqrt(len(residuals) / width)),
        )
    )
    return Fall(
        start=float(reward.values[:width].mean()),
        peak=float(means[top]),
        peak_step=int(reward.steps[top]),
        end=float(last.mean()),
        error=error,
    )
