"""Completions have no reward.

## What it means

At some or all steps the reward is NaN or None, or a share of the completions got none from any
reward function.

## Why it costs

Frameworks silently exclude such completions from their group's mean or set the advantage to zero:
they were generated and trained on in vain. A NaN that gets through ends the run.

## Evidence shown

The number of steps whose reward is not a number, the first of them, and the mean share of
completions without a reward. Reward functions that are NaN at some steps are named.

## Fix

Return a number for every completion: 0, not None, for an answer that can't be parsed. Avoid
division by zero and the logarithm of zero. None is for functions that don't apply to a prompt;
then another function must. The cost is the time of the completions without a reward.

## When it is wrong

Functions that each score a part of the data set return None by design; this rule is silent as long
as each completion gets a reward from one of them.

## References

- https://huggingface.co/docs/trl/grpo_trainer (None from a reward function)
- https://github.com/huggingface/trl/blob/main/trl/trainer/grpo_trainer.py
"""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis.learning import Curve
from grpo_doctor.analysis.learning.shape import broken
from grpo_doctor.findings.learning import (
    MISSING_RATIO,
    MOST_STEPS,
    learning_phases,
    learning_share,
    metric_even_nan,
    missing_share,
    step_evidence,
)
from grpo_doctor.findings.learning_fixes import learning_advice
from grpo_doctor.findings.rule import Answer, Evidence, Finding, NotApplicable, Passed
from grpo_doctor.findings.severity import Severity, percent
from grpo_doctor.findings.signals import REWARD_COMPONENTS
from grpo_doctor.findings.view import RunView, rule

RULE = rule(
    __name__,
    __doc__,
    "learning",
    metric_even_nan("reward"),
    uses=(MISSING_RATIO, REWARD_COMPONENTS),
)
# One step is enough: a healthy run has none. The grades are shares of all completions.
GRADES: dict[Severity, float] = {"high": 0.20, "medium": 0.02, "low": 0.0}
_NUMBERS = (
    "return a number from the reward function for every completion: 0 if the answer can't be "
    "parsed, never None, no division by zero"
)


def check(view: RunView) -> Answer:
    """Count completions without a reward, a step without any as all of its own."""
    missing = missing_share(view)
    reward = view.metric("reward")
    if reward is None:
        return NotApplicable("no step has a reward")
    share = float(missing.values.mean())
    if share <= 0:
        return Passed(f"the reward is a number at all {len(missing)} steps")
    lost = reward.where(reward.bad)
    rows = missing.steps[missing.values > 0]
    every = len(lost) == len(reward)
    cost = share * learning_share(view)
    culprits = [name for name, (mean, _) in view.reward_components().items() if mean.bad.any()]
    where = "at every step" if every else f"at {len(rows)} of {len(reward)} steps"
    return Finding(
        severity=next(s for s, least in GRADES.items() if share >= least),
        confidence=1.0,
        cost=cost,
        phases=learning_phases(view),
        evidence=_evidence(missing, lost, int(rows[0])),
        cause=f"{percent(share, 1)} of the completions have no reward, {where}"
        + (f"; NaN comes from {', '.join(culprits)}." if culprits else "."),
        fixes=(learning_advice(view, _NUMBERS, safety="needs-code"),),
        headline=f"The reward is {_word(reward)} {where}" if len(lost) else "",
        steps=() if every else tuple(rows[:MOST_STEPS].tolist()),
        ruins=every or broken(reward),
    )


def _word(reward: Curve) -> str:
    infinite = np.isinf(reward.values).any() and not np.isnan(reward.values).any()
    return "infinite" if infinite else "missing (NaN or None)"


def _evidence(missing: Curve, lost: Curve, first: int) -> tuple[Evidence, ...]:
    where = f"{missing.key}, {len(missing)} steps"
    return (
        Evidence("completions without a reward", 100 * float(missing.values.mean()), "%", where),
        Evidence("steps whose reward is not a number", len(lost), "", where),
        *step_evidence("first at step", first, missing),
    )
