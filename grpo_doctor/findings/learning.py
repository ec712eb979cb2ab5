"""What the rules about learning share: their signals, and whether the reward rises or fell.

Fixes of runs whose updates go too far, which several rules give.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from grpo_doctor.analysis import Analysis
from grpo_doctor.analysis.learning import METRICS, RATE, curve
from grpo_doctor.analysis.learning.curves import Curve, Mask, Numbers
from grpo_doctor.analysis.learning.names import key_of, own_keys
from grpo_doctor.analysis.learning.shape import (
    broken,
    end_points,
    ends,
    error_of_mean,
    onset,
    rising,
    smooth,
)
from grpo_doctor.findings.rule import (
    Answer,
    Evidence,
    Finding,
    Fix,
    NotApplicable,
    Passed,
    Rule,
    Safety,
)
from grpo_doctor.findings.signals import Signal, any_of
from grpo_doctor.findings.view import RunView

# What a rollout whose reward teaches nothing has cost in vain.
LEARNING_PHASES = ("rollout", "reward", "logprob", "train")
# Rewards within this of each other are equal; the trainers' own advantage epsilon is 1e-4.
EQUAL = 1e-6
# What `flat_from` and `missing_share` read, in addition to the reward.
_RANGE = ("critic/score/max", "critic/score/min")
FLAT_REWARD = ("reward", "reward_std", *_RANGE)
MISSING_RATIO = key_of("reward_missing")
# A flat reward has to last this many steps to be called so.
FLAT_POINTS = 5
MOST_STEPS = 200
# Rules whose subject are steps without a number.
_OF_NAN = ("GD058", "GD064")
LEARNS_OTHERWISE = "it changes what is learned, not the step time"


def metric(name: str, points: int = 1) -> Signal:
    """Return a training metric that enough steps have said as a number."""
    others = [(each, own[0]) for each, own in reversed(METRICS[name].items()) if each != "trl"]
    elsewhere = ", ".join(f"{framework} `{key}`" for framework, key in others)
    names = f"metric `{key_of(name)}`" + (f" ({elsewhere})" if elsewhere else "")
    at = f" at {points} steps or more" if points > 1 else ""
    text = f"{names}{at}: grpo_doctor_probes.metrics(step, values), in a run that is long enough"
    return Signal(text, partial(_has, name, points), (name,), partial(_why_not, name, points))


def metric_even_nan(name: str) -> Signal:
    """Return a training metric that any step has logged, even as NaN."""
    text = f"metric `{key_of(name)}`: grpo_doctor_probes.metrics(step, values) on rank 0"
    return Signal(text, lambda a: curve(a.trace, name) is not None, (name,))


def any_metric(*names: str) -> Signal:
    """Return at least one of several metrics at any step, even as NaN."""
    keys = ", ".join(f"`{key_of(name)}`" for name in names[:3])
    text = f"metric {keys} and others: grpo_doctor_probes.metrics(step, values) on rank 0"
    return any_of(text, *(metric_even_nan(name) for name in names))


def _has(name: str, points: int, analysis: Analysis) -> bool:
    metric_curve = curve(analysis.trace, name)
    if metric_curve is None or broken(metric_curve):
        return False
    return len(metric_curve.finite) >= points


def _why_not(name: str, points: int, analysis: Analysis) -> str:
    """The one reason for which this run's metric can't be judged; empty where it has none."""
    run, metric_curve = analysis.trace.run, curve(analysis.trace, name)
    if metric_curve is None:
        own = own_keys(name, run.framework)
        if run.origin is None or run.framework == "unknown":
            return ""
        if not own:
            return f"metric `{key_of(name)}`: {run.framework} does not log it"
        return f"metric `{own[0]}`: not in {run.origin.what}"
    if broken(metric_curve):
        return f"metric `{metric_curve.key}`: it is {when_bad(metric_curve)}, see GD058 and GD064"
    count = len(metric_curve.finite)
    return f"metric `{metric_curve.key}` at {points} steps or more: this run has {count}"


def lost_for_good(metric_curve: Curve) -> bool:
    """Return whether no step has a number any more, and that not only at the last one."""
    bad = metric_curve.bad
    return int(bad.sum()) > 1 and bool(bad[int(np.argmax(bad)) :].all())


def when_bad(metric_curve: Curve) -> str:
    """`NaN from step 25 on`, `infinite at 2 of 30 steps, first at step 7`."""
    bad, count = metric_curve.bad, len(metric_curve)
    word = "NaN" if np.isnan(metric_curve.values).any() else "infinite"
    first, lost = int(metric_curve.steps[bad][0]), int(bad.sum())
    if lost == count:
        return f"{word} at every step" if count > 1 else f"{word} at the only step, {first}"
    if lost_for_good(metric_curve):
        return f"{word} from step {first} on"
    return f"{word} at {lost} of {count} {steps_of(metric_curve)}, first at step {first}"


def with_lost_steps(answer: Answer, rule: Rule, view: RunView) -> Answer:
    """The answer with a word on each metric that it is from and that has steps without a number."""
    of_nan = rule.id in _OF_NAN and isinstance(answer, Finding)
    if isinstance(answer, NotApplicable) or of_nan:
        return answer
    curves = (view.metric(name) for name in sorted(rule.declared & METRICS.keys()))
    lost = [f"`{c.key}` is {when_bad(c)}" for c in curves if c is not None and c.bad.any()]
    if not lost:
        return answer
    words = f"{'; '.join(lost)}: not counted here"
    if isinstance(answer, Passed):
        return Passed(f"{answer.note}; {words}")
    return replace(answer, cause=f"{answer.cause} {words}.")


def finite(view: RunView, name: str) -> Curve:
    """Return the finite steps of a metric that the rule's signals asked for; empty without it."""
    metric_curve = view.metric(name)
    return metric_curve.finite if metric_curve is not None else _empty_curve(name)


def _empty_curve(name: str) -> Curve:
    return Curve(key_of(name), np.empty(0, np.int64), np.empty(0))


def source(metric_curve: Curve) -> str:
    """Return where a number is from, for evidence."""
    every = len(metric_curve) + metric_curve.lost
    lost = metric_curve.lost + int(metric_curve.bad.sum())
    if not lost:
        return f"{metric_curve.key}, {every} {steps_of(metric_curve)}"
    steps = steps_of(metric_curve)
    return f"{metric_curve.key}, {every - lost} of {every} {steps}: NaN at {lost}"


_COARSE = 0.1


def over_run(what: str, shown: Curve, unit: str = "") -> tuple[Evidence, ...]:
    """Return how a curve begins and ends, with its trend in one line, and both ends as numbers."""
    medians, means = ends(shown), ends(shown, np.mean)
    # A share of few groups is 0 or 1 at most steps, and so is its median.
    coarse = unit == "%" and max(abs(np.subtract(medians, means))) > _COARSE
    first, last = means if coarse else medians
    kind, count = "mean" if coarse else "median", counted_steps(shown)
    factor, written = (100, "%") if unit == "%" else (1, f" {unit}".rstrip())
    begins, finishes = (f"{factor * value:.3g}{written}" for value in (first, last))
    rises, where = rising(shown.values), source(shown)
    falls = rises <= -RISES and last < first
    trend = "falling" if falls else "rising" if rises >= RISES and last > first else "no trend"
    ends_said = f"{begins} at first, {finishes} at last ({kind}s, {trend})"
    return (
        Evidence(f"{what}, over the run", ends_said, "", where),
        Evidence(f"{what}, {kind} of the last {count}", factor * last, unit, where),
        Evidence(f"{what}, {kind} of the first {count}", factor * first, unit, where),
    )


def counted_steps(shown: Curve) -> str:
    """Return the length of either end of a curve in words: a tenth of the run, or a few steps."""
    count = end_points(len(shown))
    return f"{count} {steps_of(shown, count)}"


def steps_of(shown: Curve, count: int = 2) -> str:
    """Return `steps`; `logged steps` of a run that logs each tenth step."""
    apart = np.diff(shown.steps)
    logged = "logged " * bool(len(apart) and np.median(apart) > 1)
    return f"{logged}step{'s' * (count != 1)}"


def falls(shown: Curve) -> bool:
    """Return whether a curve goes down over the run, to three quarters of its start or less."""
    first, last = ends(shown)
    return last <= FALLS * first and rising(shown.values) <= -RISES


def step_evidence(text: str, step: int | None, metric_curve: Curve) -> tuple[Evidence, ...]:
    """Return a step number, where there is such a step."""
    return () if step is None else (Evidence(text, step, "", source(metric_curve)),)


def from_step(metric_curve: Curve, step: int | None) -> tuple[int, ...]:
    """Return the numbers of the steps from an onset on, the first of many; empty for all."""
    if step is None:
        return ()
    return tuple(metric_curve.steps[metric_curve.steps >= step][:MOST_STEPS].tolist())


def share(view: RunView) -> float:
    """The share of the step time that makes and uses rollouts; 0 where no time was recorded."""
    if not len(view.analysis.step_seconds):
        return 0.0
    return min(1.0, sum(view.share(phase) for phase in phases(view)))


def phases(view: RunView) -> tuple[str, ...]:
    """Return the phases that make and use rollouts, as far as they were timed."""
    timed = (phase for phase in LEARNING_PHASES if view.times(phase))
    return tuple(phase for phase in timed if view.share(phase))


def reward_spread(view: RunView) -> Curve:
    """How rewards of one step differ: their deviation, else their range; empty without either."""
    spread, (top, bottom) = finite(view, "reward_std"), map(view.metric_called, _RANGE)
    if len(spread) or top is None or bottom is None or len(top) != len(bottom):
        return spread
    return Curve("critic/score max - min", top.steps, top.values - bottom.values).finite


def flat_from(view: RunView) -> int | None:
    """The step from which on, but for one in five, all completions of a step have one reward, the
    same in each step."""
    reward, spread = finite(view, "reward"), reward_spread(view)
    if not len(spread):
        alike = len(reward) >= FLAT_POINTS and np.ptp(reward.values) <= EQUAL
        return int(reward.steps[0]) if alike else None
    reward, flat = flat_steps(view)
    if len(reward) < FLAT_POINTS:
        return None
    begins = onset(reward, flat)
    if begins is None or (reward.steps >= begins).sum() < FLAT_POINTS:
        return None
    return begins


def flat_steps(view: RunView) -> tuple[Curve, Mask]:
    """The reward, and at which of its steps all completions have the one that they have at last."""
    reward, spread = finite(view, "reward"), reward_spread(view)
    if len(spread):
        shared = np.intersect1d(reward.steps, spread.steps)
        reward = reward.where(np.isin(reward.steps, shared))
        spread = spread.where(np.isin(spread.steps, shared))
    last = float(reward.values[-1]) if len(reward) else 0.0
    flat: Mask = np.abs(reward.values - last) <= EQUAL * max(1.0, abs(last))
    return reward, flat & (spread.values <= EQUAL) if len(spread) else flat


def missing_share(view: RunView) -> Curve:
    """Return the share of completions without a reward at each step: 1 where the reward is NaN."""
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
FALLS = 0.75
ERRORS = 3.0
THIRD = 3
LEAST_POINTS = 5
LEAST_WINDOW = 10


def reward_rises(view: RunView, until: int | None = None) -> bool:
    """Return whether the reward rises over the run, or still rose after step `until`."""
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
    """Compare the highest window with the last one; windows are a tenth of the run, at least ten
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
    usual = error_of_mean(residuals) * np.sqrt(len(residuals) / width)
    error = float(np.hypot(*(max(error_of_mean(part), usual) for part in (window, last))))
    return Fall(
        start=float(reward.values[:width].mean()),
        peak=float(means[top]),
        peak_step=int(reward.steps[top]),
        end=float(last.mean()),
        error=error,
    )


# DAPO's upper bound, with 0.2 below.
CLIP_HIGH = 0.28
_HIGH, _EPSILON = "train.epsilon_high", "train.epsilon"
_BETA, _NORM, _ITERATIONS = "train.beta", "train.max_grad_norm", "train.num_iterations"
# The weight of the KL term in DeepSeekMath.
KL_BETA = 0.04


def setting(view: RunView, knob: str, value: Any, *, risk: str) -> Fix:
    """Return a setting that changes what is learned."""
    return view.setting(knob, value, LEARNS_OTHERWISE, safety="changes-algorithm", risk=risk)


def advice(
    view: RunView, text: str, *, safety: Safety = "changes-algorithm", risk: str = ""
) -> Fix:
    """Advice whose gain is in what is learned."""
    return view.advice(text, LEARNS_OTHERWISE, safety=safety, risk=risk)


def slower(view: RunView) -> tuple[Fix, ...]:
    """Return a lower learning rate, as a value where the present one is known."""
    now = view.stated(RATE)
    risk = "Training needs more steps."
    if not isinstance(now, (int, float)) or now <= 0:
        return (advice(view, "a learning rate of a fifth", risk=risk),)
    return (setting(view, RATE, float(f"{now / 5:.1g}"), risk=risk),)


def clip_higher(view: RunView) -> tuple[Fix, ...]:
    """Return a wider upper clipping bound, unless there is one already."""
    now = view.now(_HIGH) or view.now(_EPSILON) or 0.2
    if not isinstance(now, (int, float)) or now >= CLIP_HIGH:
        return ()
    risk = "Updates that raise rare tokens become larger."
    return (setting(view, _HIGH, CLIP_HIGH, risk=risk),)


def stay_close(view: RunView) -> tuple[Fix, ...]:
    """Return a KL term, or one of twice the weight."""
    now = view.stated(_BETA)
    risk = "Keeps the policy near its reference"
    if not isinstance(now, (int, float)):
        heavier = advice(view, "a heavier KL term", risk=f"{risk}.")
        return (heavier,) if view.trace.run.origin else ()
    beta = float(f"{2 * now:.2g}") if now else KL_BETA
    risk += "." if now else "; its log-probs then cost a forward pass per step."
    return (setting(view, _BETA, beta, risk=risk),)


def clip_gradients(view: RunView) -> tuple[Fix, ...]:
    """Gradient clipping at 1, unless it is that low already."""
    now = view.now(_NORM)
    if isinstance(now, (int, float)) and 0 < now <= 1:
        return ()
    return (setting(view, _NORM, 1.0, risk="Large gradients are scaled down."),)


def fewer_iterations(view: RunView) -> tuple[Fix, ...]:
    """Return each rollout trained on once."""
    now = view.now(_ITERATIONS)
    if not isinstance(now, int) or now <= 1:
        return ()
    risk = "The same number of optimizer steps then needs more rollouts."
    return (setting(view, _ITERATIONS, 1, risk=risk),)
