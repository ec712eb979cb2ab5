"""How sure the gain of paired trials is: one value for each pair of runs, Student's t over them.

Steps of one run are not independent of each other (the machine's minute, its cache), so that only
runs count. In the order before, after, after, before a steady drift cancels out of the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, sqrt

from grpo_doctor_reports.schema.treat import Percent, TrialEntry

# Student's t by number of pairs. Asking again after each block would keep noise too often, so the
# first answer is at 97.5%, the next at 99%, later ones at 99.5%: together they err in 5%.
T_BY_PAIRS = {2: 12.706, 4: 4.541, 6: 4.032, 8: 3.499, 12: 3.106}
MOST_PAIRS = max(T_BY_PAIRS)


def interval(ratios: Sequence[float]) -> Percent:
    """Return the mean change in percent and its interval: 95%, of later blocks wider.

    Args:
        ratios: logarithm of after over before, one for each pair; as many as `T_BY_PAIRS` has.
    """
    count = len(ratios)
    mean = sum(ratios) / count
    spread = sqrt(sum((ratio - mean) ** 2 for ratio in ratios) / (count - 1))
    half = T_BY_PAIRS[count] * spread / sqrt(count)
    low, mid, high = (100 * (exp(mean + end) - 1) for end in (-half, 0.0, half))
    return Percent(low=low, mid=mid, high=high)


def ratio(before: TrialEntry, after: TrialEntry, *, skip: int, steps: int, goal: str) -> float:
    """Return the logarithm of after over before, over the steps that both have.

    Args:
        before: a trial.
        after: the one that is paired with it.
        skip: steps of warm-up that are left out.
        steps: how many then count at most; what follows may be the end of a run.
        goal: `step-time`, or `tokens` for seconds per completion token.

    Raises:
        ValueError: they have no step in common, or tokens are asked for and not recorded.
    """
    first = min(before.steps[:1] + after.steps[:1], default=0) + skip
    common = set(before.steps) & set(after.steps) & set(range(first, first + steps))
    if not common:
        raise ValueError("the trials have no step in common after the warm-up")
    return log(_cost(after, common, goal) / _cost(before, common, goal))


def _cost(trial: TrialEntry, numbers: set[int], goal: str) -> float:
    rows = [row for row, number in enumerate(trial.steps) if number in numbers]
    each = trial.step_seconds
    seconds = sum(each[row] for row in rows)
    if goal == "step-time":
        return seconds
    tokens = sum((trial.tokens[row] or 0.0) for row in rows) if trial.tokens else 0.0
    if not tokens:
        raise ValueError("completion tokens were not recorded")
    return seconds / tokens
