"""Completions have no reward."""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis.learning import Curve
from grpo_doctor.analysis.learning.shape import broken
from grpo_doctor.findings import learning
from grpo_doctor.findings.rule import Answer, Evidence, Finding, NotApplicable, Passed
from grpo_doctor.findings.shared import Severity, percent
from grpo_doctor.findings.signals import REWARD_COMPONENTS
from grpo_doctor.findings.view import RunView, rule

RULE = rule(
    "learning", learning.metric_even_nan("reward"), uses=(learning.MISSING_RATIO, REWARD_COMPONENTS)
)
# One step is enough: a healthy run has none. The grades are shares of all completions.
GRADES: dict[Severity, float] = {"high": 0.20, "medium": 0.02, "low": 0.0}
_NUMBERS = (
    "return a number from the reward function for every completion: 0 if the answer can't be "
    "parsed, never None, no division by zero"
)


def check(view: RunView) -> Answer:
    """Count completions without a reward, a step without any as all of its own."""
    missing = learning.missing_share(view)
    reward = view.metric("reward")
    if reward is None:
        return NotApplicable("no step has a reward")
    share = float(missing.values.mean())
    if share <= 0:
        return Passed(f"the reward is a number at all {len(missing)} {learning.steps_of(missing)}")
    lost = reward.where(reward.bad)
    rows = missing.steps[missing.values > 0]
    every = len(lost) == len(reward)
    cost = share * learning.share(view)
    culprits = [name for name, (mean, _) in view.reward_components().items() if mean.bad.any()]
    where = (
        "at every step" if every else f"at {len(rows)} of {len(reward)} {learning.steps_of(reward)}"
    )
    return Finding(
        severity=next(s for s, least in GRADES.items() if share >= least),
        confidence=1.0,
        cost=cost,
        phases=learning.phases(view),
        evidence=_evidence(missing, lost, int(rows[0])),
        cause=f"{percent(share, 1)} of the completions have no reward, {where}"
        + (f"; NaN comes from {', '.join(culprits)}." if culprits else "."),
        fixes=(learning.advice(view, _NUMBERS, safety="needs-code"),),
        headline=f"The reward is {_word(reward)} {where}" if len(lost) else "",
        steps=() if every else tuple(rows[: learning.MOST_STEPS].tolist()),
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
        *learning.step_evidence("first at step", first, missing),
    )
