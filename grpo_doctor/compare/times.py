"""Step time, time per token, and each phase, before and after."""

from __future__ import annotations

import numpy as np

from grpo_doctor.compare.interval import NEEDS_STEPS, Interval, change_of_mean, change_of_ratio
from grpo_doctor.compare.run import ComparedRun
from grpo_doctor.phases import PHASES, UNATTRIBUTED
from grpo_doctor_reports.schema.compare import Change, PhaseChange

FASTER, SLOWER, SAME, UNKNOWN = "faster", "slower", "no difference", "not enough evidence"
# A phase that takes less than this share of the longer step in both runs is left out.
_WORTH_SHOWING = 0.001
_DIGITS = 6


def step_time(before: ComparedRun, after: ComparedRun) -> Change:
    """Seconds per step."""
    first, second = before.step_seconds, after.step_seconds
    ones = np.ones(len(first)), np.ones(len(second))
    interval = change_of_ratio((first, ones[0]), (second, ones[1]))
    few = f"each run needs {NEEDS_STEPS} steps after the warm-up; there are {{}} and {{}}"
    note = "" if interval else few.format(len(first), len(second))
    return _change(_mean(first), _mean(second), interval, note)


def per_token(before: ComparedRun, after: ComparedRun) -> Change:
    """Seconds per thousand completion tokens: what longer completions cost is no slowness."""
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
    """Every phase that takes any visible time, in canonical order."""
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
