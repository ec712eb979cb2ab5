"""Predicts what a change brings, or several, and says how far the result can be trusted.

Steps resampled in blocks of neighbors, because they are not independent.

A slow minute of the file system, or completions that grow, spans many steps: their mean is less
sure than that of as many steps by themselves. Blocks are as long as the steps' correlation asks for
(Politis and White 2004, https://doi.org/10.1081/ETC-120028836, for a correlation that falls off
geometrically).

How much wider than a bootstrap says an interval from few values is.

A draw from n values has less spread than a sample of n, and the percentiles of few know nothing of
how unsure their spread is: Student's t over the normal (Hesterberg 2015,
https://doi.org/10.1080/00031305.2015.1089789).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from math import sqrt
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.trace.intervals import Rows
from grpo_doctor.whatif.step_model import Change, StepModel, only_removes, replay

_MOST_CORRELATED = 0.95
_MOST_DRAWN = 4096  # values: a draw of a million steps by themselves takes 3 GB


def neighbor_means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what is drawn from: the steps, shape (steps,), or of a long run means over as many
    neighbors each, shape (2049 to 4096,)."""
    size = -(-len(values) // _MOST_DRAWN)
    if size <= 1:
        return values
    starts = np.arange(0, len(values), size)
    means: NDArray[np.float64] = np.add.reduceat(values, starts) / np.diff(
        starts, append=len(values)
    )
    return means


def block_length(values: NDArray[np.float64]) -> int:
    """Return how many neighboring steps to draw together: 1 without correlation between them."""
    centred = values - values.mean()
    spread = float((centred**2).sum())
    correlation = float((centred[1:] * centred[:-1]).sum()) / spread if spread else 0.0
    correlation = min(max(correlation, 0.0), _MOST_CORRELATED)
    pull = (2 * correlation / (1 - correlation**2)) ** (2 / 3)
    return int(np.clip(round((1.5 * len(values)) ** (1 / 3) * pull), 1, len(values) // 4 or 1))


def draw_blocks(count: int, length: int, draws: int, dice: np.random.Generator) -> Rows:
    """Rows of each draw, shape (draws, count): whole blocks, from a circle, so that all steps
    are drawn as often."""
    starts = dice.integers(0, count, (draws, -(-count // length)))
    rows = (starts[:, :, None] + np.arange(length)) % count
    return rows.reshape(draws, -1)[:, :count]


# Quantiles of the normal distribution.
AT_95, AT_97_5 = 1.644854, 1.959964


def student(count: int, normal: float) -> float:
    """Student's t by the expansion of Cornish and Fisher, over the normal.

    Args:
        count: independent values that a spread is estimated from; at least 3. Of 3 it is within
            2% (two degrees of freedom).
        normal: the quantile of the normal distribution.
    """
    z, free = normal, count - 1
    quantile = (
        z
        + (z**3 + z) / (4 * free)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * free**3)
    )
    return quantile / z


def widened(count: int, normal: float) -> float:
    """Return what the distance of a bootstrap's percentile from its middle is to be multiplied by.

    Args:
        count: values, or blocks of values, that are drawn from; at least 3.
        normal: the percentile's quantile of the normal distribution.

    Returns:
        Student's t over the normal, with the factor that makes the spread unbiased.
    """
    return student(count, normal) * sqrt(count / (count - 1))


# Replays of a run from its own trace are published at 3-5% error; beyond that the model does not
# describe this run, and a prediction would be a guess.
TOLERANCE = 0.05
# With fewer steps there is no spread to speak of.
NEEDS_STEPS = 3
# Where chance moves a run by as much of its step, an interval says nothing: it would reach to 0 s.
MOST_APART = 0.75
# A guess, fitted to no runs: how far the change by a plain removal is off, as a share of it.
REMOVAL_ERROR = 0.15
# A guess too: two runs of the same settings differ by so much of a step, whatever is predicted.
RUN_ERROR = 0.02
_RESAMPLES = 400
_LOW, _HIGH = 5, 95
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Spread:
    """A change fitted to a run's own data, and the ends that hold it nine times in ten by chance.

    Hard alternatives, of which any may be true, are `at_least` and `at_most` instead.
    """

    middle: tuple[Change, ...]
    shy: tuple[Change, ...]
    bold: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Effect:
    """A change of the steps' work, what it takes for granted in words, and how far it may be off.

    `at_least` and `at_most` are a more cautious and a bolder version of the changes; `error` is
    their model's own error as a share of the change of the step time. `spreads` are what fits to
    this run's data leave open.
    """

    changes: tuple[Change, ...]
    assumes: str = ""
    error: float = REMOVAL_ERROR
    at_least: tuple[Change, ...] | None = None
    at_most: tuple[Change, ...] | None = None
    spreads: tuple[Spread, ...] = ()


NOTHING = Effect((), error=0.0)


@dataclass(frozen=True, slots=True)
class Prediction:
    """The change of the mean step time in percent, negative is faster; `basis` says from what.

    With its `effect` several predicted changes can be replayed together.
    """

    low: float
    mid: float
    high: float
    basis: str
    effect: Effect = NOTHING

    @property
    def grounds(self) -> str:
        """What it rests on, in words."""
        assumes = self.effect.assumes
        return f"{self.basis}; assumed: {assumes}" if assumes else self.basis


@dataclass(frozen=True, slots=True)
class Withheld:
    """No prediction, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class NoModel(Withheld):
    """No prediction, because no model speaks of these settings."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A change of the steps' work, in words too ("without its offload"); with `half` the cautious
    end of the prediction is half of it, and `at_most` is its bold end."""

    edits: tuple[Change, ...]
    scenario: str
    half: bool = False
    at_most: tuple[Change, ...] | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """Other values of settings, by canonical name, and the change where no model has them."""

    after: tuple[tuple[str, Any], ...]
    otherwise: Replay | str | None = None


# What is to be predicted; or, in words, why nothing can be said.
WhatIf = Replay | Settings | Withheld | str


@dataclass(frozen=True, slots=True)
class Ground:
    """A model whose unchanged replay is near enough to what was measured.

    `before` is that replay, shape (steps,), and `off` how far it is off (`replay_error`). Another
    run of as many steps is a draw from them (`neighbor_means`), in `blocks` blocks of neighbors:
    `own`, shape (draws, steps), are steps that this run might have had, and `changed` those that a
    run after the change has, drawn by themselves.
    """

    model: StepModel
    before: NDArray[np.float64]
    off: float
    blocks: int
    own: Rows
    changed: Rows


def replay_error(model: StepModel, replayed: NDArray[np.float64]) -> float:
    """How far the unedited replay is off: the mean over steps of |replayed - measured| as a share
    of the measured mean; infinite without steps."""
    if not len(model.measured_s) or not model.measured_s.mean() > 0:
        return float("inf")
    return float(np.abs(replayed - model.measured_s).mean() / model.measured_s.mean())


def ground(model: StepModel) -> Ground | Withheld:
    """Replay a model unchanged; withheld where that says that no change can be replayed."""
    steps = len(model.measured_s)
    if steps < NEEDS_STEPS:
        return Withheld(f"a prediction needs at least {NEEDS_STEPS} steps, this run has {steps}")
    before = replay(model)
    off = replay_error(model, before)
    if not off <= TOLERANCE:
        return Withheld(
            f"replaying this run unchanged is {100 * off:.0f}% off its measured step time, "
            "so a replayed change would be no better"
        )
    values = neighbor_means(before)
    length, count = block_length(values), len(values)
    drawn = draw_blocks(count, length, 2 * _RESAMPLES, np.random.default_rng(0))
    base = Ground(model, before, off, count // length, drawn[:_RESAMPLES], drawn[_RESAMPLES:])
    apart = -_drawn(base, before, _LOW)
    if apart > 100 * MOST_APART:
        return Withheld(
            f"the {steps} steps vary so much that a second run of the same settings may differ by "
            f"{apart:.0f}%: record more steps, on hosts without other load"
        )
    return base


def predict(model: StepModel, effect: Effect, description: str) -> Prediction | Withheld:
    """Replay before and after on each step.

    Args:
        model: the run.
        effect: the change.
        description: the change in words, for the basis: "without its offload".
    """
    base = ground(model)
    return base if isinstance(base, Withheld) else predict_on(base, effect, description)


def predict_on(base: Ground, effect: Effect, description: str) -> Prediction:
    """Return the same on a model that was replayed before.

    `mid` is the change of the mean step. `low` and `high` are a 90% prediction interval for
    runs of as many steps after the change. The replayed steps and those of such a run are
    resampled, in blocks where neighbors are alike. The model's own error, that of its fit and that
    of the unchanged replay are added in quadrature, for
    they are independent; `at_least` and `at_most` are ends from which all that is counted. Changes
    that only remove work are never predicted to cost time: their interval ends at no change.
    """
    after = replay(base.model, effect.changes)
    bold = after if effect.at_most is None else replay(base.model, effect.at_most)
    shy = after if effect.at_least is None else replay(base.model, effect.at_least)
    mid = _percent(base.before, after)
    open_ends = [_open_ends(base, spread) for spread in effect.spreads]
    low = _end(base, bold, _LOW, effect.error, [ends[0] for ends in open_ends])
    high = _end(base, shy, _HIGH, effect.error, [ends[1] for ends in open_ends])
    # A `Hide` with fewer processes than now does cost time: then there is nothing to cut off.
    costs = max(mid, _percent(base.before, shy)) > 0
    if only_removes((*effect.changes, *(effect.at_least or ()))) and not costs:
        high = min(high, 0.0)
    return Prediction(
        low=min(max(low, -100.0), mid),
        mid=mid,
        high=max(high, mid),
        basis=f"replay of this run's own {len(base.before)} steps {description}; "
        f"the replay of the unchanged run is {100 * base.off:.1f}% off",
        effect=effect,
    )


def _percent(before: NDArray[np.float64], after: NDArray[np.float64]) -> float:
    return float(100 * (after.mean() / before.mean() - 1))


def _end(
    base: Ground, after: NDArray[np.float64], end: int, error: float, fitted: Sequence[float]
) -> float:
    """One end of the interval around a change, in percent; `fitted` is how far fits let it lie."""
    change = _percent(base.before, after)
    if not change and not any(fitted):
        return change
    errors = [
        _drawn(base, after, end),
        error * abs(change),
        100 * base.off,
        100 * RUN_ERROR,
        *fitted,
    ]
    return change + float(np.copysign(np.hypot.reduce(errors), end - 50))


def _drawn(base: Ground, steps: NDArray[np.float64], end: int) -> float:
    """How far a run of these steps may be off, in percent: what is replayed is a draw itself."""
    values = neighbor_means(steps)
    apart = values[base.changed].mean(axis=1) - values[base.own].mean(axis=1)
    percentile = 100 * float(np.percentile(apart, end)) / float(base.before.mean())
    return percentile * widened(base.blocks, AT_95)


def _open_ends(base: Ground, spread: Spread) -> tuple[float, float]:
    """How far a fit lets the bold and the shy end lie from its middle, in percent of the step."""
    bold, middle, shy = (
        _percent(base.before, replay(base.model, changes))
        for changes in (spread.bold, spread.middle, spread.shy)
    )
    return bold - middle, shy - middle


def together(base: Ground, predictions: Sequence[Prediction], description: str) -> Prediction:
    """Replay all changes at once; a change that several predictions have is made once."""
    effects = [each.effect for each in predictions]
    joint = Effect(
        joined(each.changes for each in effects),
        "; ".join(each.assumes for each in effects if each.assumes),
        joint_error(base, [(each.changes, each.error) for each in effects]),
        _version(effects, "at_least"),
        _version(effects, "at_most"),
        joined(each.spreads for each in effects),
    )
    return predict_on(base, joint, description)


def joined(lists: Iterable[Sequence[T]]) -> tuple[T, ...]:
    """Return all that the lists hold, each once, in their order."""
    return tuple(dict.fromkeys(chain.from_iterable(lists)))


def joint_error(base: Ground, models: Sequence[tuple[Sequence[Change], float]]) -> float:
    """The models' errors weighed by what each changes by itself, as a share of what all change.

    Models are taken to be off independently of each other.
    """
    now = base.before.mean()
    alone = [(float(replay(base.model, changes).mean() - now), error) for changes, error in models]
    every = sum(abs(change) for change, _ in alone)
    if not every:
        return max((error for _, error in alone), default=0.0)
    return float(np.sqrt(sum((error * change) ** 2 for change, error in alone))) / every


def _version(effects: Sequence[Effect], end: str) -> tuple[Change, ...] | None:
    """Return all changes in their cautious or bold version; None where none has one."""
    versions = [getattr(each, end) for each in effects]
    if all(version is None for version in versions):
        return None
    return joined(
        each.changes if version is None else version
        for each, version in zip(effects, versions, strict=True)
    )
