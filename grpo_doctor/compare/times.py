"""Step time, time per token, and each phase, before and after; how sure a difference is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.compare.run import ComparedRun
from grpo_doctor.phases import PHASES, UNATTRIBUTED
from grpo_doctor.whatif import prediction
from grpo_doctor_reports.schema.compare import Change, PhaseChange

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
    mid = float(after.mean() - before.mean())
    before, after = prediction.neighbor_means(before), prediction.neighbor_means(after)
    lengths = prediction.block_length(before), prediction.block_length(after)
    draws = _means(after, lengths[1], 1) - _means(before, lengths[0], 0)
    blocks = min(len(before) // lengths[0], len(after) // lengths[1])
    return _interval(mid, draws, blocks)


def change_of_ratio(before: tuple[Values, Values], after: tuple[Values, Values]) -> Interval | None:
    """Return the change in percent of sum(amount) / sum(per), each pair of shape (steps,).

    With `per` all one this is the change of the mean. None for too few steps, or where there is
    nothing to divide by.
    """
    shortest = min(len(before[0]), len(after[0]))
    if shortest < NEEDS_STEPS or min(part.sum() for part in (*before, after[1])) <= 0:
        return None
    mid = (after[0].sum() / after[1].sum()) / (before[0].sum() / before[1].sum()) - 1
    before = prediction.neighbor_means(before[0]), prediction.neighbor_means(before[1])
    after = prediction.neighbor_means(after[0]), prediction.neighbor_means(after[1])
    lengths = _of_ratio(*before), _of_ratio(*after)
    first, second = _ratios(*before, lengths[0], 0), _ratios(*after, lengths[1], 1)
    blocks = min(len(before[0]) // lengths[0], len(after[0]) // lengths[1])
    interval = _interval(float(100 * mid), 100 * (second / first - 1), blocks)
    return Interval(
        interval.mid, max(interval.low, -100.0), interval.high
    )  # nothing takes less than none


def _of_ratio(amount: Values, per: Values) -> int:
    """Return the block length of what moves a ratio: amounts beyond what their `per` explains."""
    return prediction.block_length(amount - amount.sum() / per.sum() * per)


def _interval(mid: float, draws: Values, blocks: int) -> Interval:
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(draws[np.isfinite(draws)], [tail, 100 - tail])
    wider = prediction.widened(blocks, prediction.AT_97_5)
    return Interval(mid, mid + (float(low) - mid) * wider, mid + (float(high) - mid) * wider)


def _means(values: Values, length: int, stream: int) -> Values:
    drawn: Values = values[_blocks(len(values), length, stream)].mean(axis=1)
    return drawn


def _ratios(amount: Values, per: Values, length: int, stream: int) -> Values:
    rows = _blocks(len(amount), length, stream)
    drawn: Values = amount[rows].sum(axis=1) / np.maximum(per[rows].sum(axis=1), 1e-12)
    return drawn


def _blocks(count: int, length: int, stream: int) -> NDArray[np.intp]:
    return prediction.draw_blocks(count, length, _DRAWS, np.random.default_rng([_SEED, stream]))


FASTER, SLOWER, SAME, UNKNOWN = "faster", "slower", "no difference", "not enough evidence"
# A phase that takes less than this share of the longer step in both runs is left out.
_WORTH_SHOWING = 0.001
_DIGITS = 6


def step_time(before: ComparedRun, after: ComparedRun) -> Change:
    """Return seconds per step."""
    first, second = before.step_seconds, after.step_seconds
    ones = np.ones(len(first)), np.ones(len(second))
    interval = change_of_ratio((first, ones[0]), (second, ones[1]))
    few = f"each run needs {NEEDS_STEPS} steps after the warm-up; there are {{}} and {{}}"
    note = "" if interval else few.format(len(first), len(second))
    return _change(_mean(first), _mean(second), interval, note)


def per_token(before: ComparedRun, after: ComparedRun) -> Change:
    """Seconds per thousand completion tokens: the cost of longer completions is not a slowdown."""
    tokens = before.step_tokens, after.step_tokens
    if tokens[0] is None or tokens[1] is None:
        missing = " and ".join(
            name for name, t in zip(("before", "after"), tokens, strict=True) if t is None
        )
        return _change(None, None, None, f"completion tokens were not recorded: {missing}")
    pairs = (before.step_seconds, tokens[0] / 1000), (after.step_seconds, tokens[1] / 1000)
    first, second = (float(seconds.sum() / count.sum()) for seconds, count in pairs)
    interval = change_of_ratio(*pairs)
    return _change(first, second, interval, "" if interval else "too few steps")


def phases(before: ComparedRun, after: ComparedRun) -> list[PhaseChange]:
    """Return every phase that takes any visible time, in canonical order."""
    first, second = before.phase_seconds, after.phase_seconds
    if not len(first) or not len(second):
        return []
    shortest = _WORTH_SHOWING * max(first.sum(axis=1).mean(), second.sum(axis=1).mean())
    changes = []
    for code, phase in enumerate((*PHASES, UNATTRIBUTED)):
        means = float(first[:, code].mean()), float(second[:, code].mean())
        if max(means) < shortest:
            continue
        interval = change_of_mean(first[:, code], second[:, code])
        changes.append(
            PhaseChange(
                phase=phase,
                before_s=round(means[0], _DIGITS),
                after_s=round(means[1], _DIGITS),
                change_s=round(means[1] - means[0], _DIGITS),
                low_s=round(interval.low, _DIGITS) if interval else None,
                high_s=round(interval.high, _DIGITS) if interval else None,
                verdict=_verdict(interval),
            )
        )
    return changes


def _change(
    before: float | None, after: float | None, interval: Interval | None, note: str
) -> Change:
    simple = 100 * (after / before - 1) if before and after is not None else None
    return Change(
        before=None if before is None else round(before, _DIGITS),
        after=None if after is None else round(after, _DIGITS),
        change_pct=None if simple is None else round(simple, 2),
        low_pct=round(interval.low, 2) if interval else None,
        high_pct=round(interval.high, 2) if interval else None,
        verdict=_verdict(interval),
        note=note,
    )


def _verdict(interval: Interval | None) -> str:
    if interval is None:
        return UNKNOWN
    if interval.high < 0:
        return FASTER
    return SLOWER if interval.low > 0 else SAME


def _mean(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float | None:
    return float(values.mean()) if len(values) else None
