"""How sure a difference of two means is: a block bootstrap over steps.

Steps are not independent, so blocks of neighbouring ones are drawn (`whatif.blocks`). Percentiles
of a bootstrap are too narrow for few blocks; `whatif.small_samples` says how they are widened. It
is the spread within a run: that two runs of the same settings differ as a whole can't be seen in
one pair.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.whatif.blocks import block_length, draw_blocks
from grpo_doctor.whatif.small_samples import AT_97_5, widened

Values = NDArray[np.float64]

NEEDS_STEPS = 4
LEVEL = 0.95
_DRAWS = 2000
_SEED = 20_050_101


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate, and what it may as well be."""

    mid: float
    low: float
    high: float


def change_of_mean(before: Values, after: Values) -> Interval | None:
    """The mean of `after` less that of `before`, each of shape (steps,); None for too few steps."""
    if min(len(before), len(after)) < NEEDS_STEPS:
        return None
    lengths = block_length(before), block_length(after)
    draws = _means(after, lengths[1], 1) - _means(before, lengths[0], 0)
    blocks = min(len(before) // lengths[0], len(after) // lengths[1])
    return _interval(float(after.mean() - before.mean()), draws, blocks)


def change_of_ratio(before: tuple[Values, Values], after: tuple[Values, Values]) -> Interval | None:
    """The change in percent of sum(amount) / sum(per), each pair of shape (steps,).

    With `per` all one this is the change of the mean. None for too few steps, or where there is
    nothing to divide by.
    """
    shortest = min(len(before[0]), len(after[0]))
    if shortest < NEEDS_STEPS or min(part.sum() for part in (*before, after[1])) <= 0:
        return None
    lengths = _of_ratio(*before), _of_ratio(*after)
    first, second = _ratios(*before, lengths[0], 0), _ratios(*after, lengths[1], 1)
    blocks = min(len(before[0]) // lengths[0], len(after[0]) // lengths[1])
    mid = (after[0].sum() / after[1].sum()) / (before[0].sum() / before[1].sum()) - 1
    interval = _interval(float(100 * mid), 100 * (second / first - 1), blocks)
    return Interval(
        interval.mid, max(interval.low, -100.0), interval.high
    )  # nothing takes less than none


def _of_ratio(amount: Values, per: Values) -> int:
    """The block length of what moves a ratio: amounts beyond what their `per` explains."""
    return block_length(amount - amount.sum() / per.sum() * per)


def _interval(mid: float, draws: Values, blocks: int) -> Interval:
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(draws[np.isfinite(draws)], [tail, 100 - tail])
    wider = widened(blocks, AT_97_5)
    return Interval(mid, mid + (float(low) - mid) * wider, mid + (float(high) - mid) * wider)


def _means(values: Values, length: int, stream: int) -> Values:
    drawn: Values = values[_blocks(len(values), length, stream)].mean(axis=1)
    return drawn


def _ratios(amount: Values, per: Values, length: int, stream: int) -> Values:
    rows = _blocks(len(amount), length, stream)
    drawn: Values = amount[rows].sum(axis=1) / np.maximum(per[rows].sum(axis=1), 1e-12)
    return drawn


def _blocks(count: int, length: int, stream: int) -> NDArray[np.intp]:
    return draw_blocks(count, length, _DRAWS, np.random.default_rng([_SEED, stream]))
