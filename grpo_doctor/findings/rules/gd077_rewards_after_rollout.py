"""Rewards wait for the whole rollout."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grpo_doctor.findings import signals
from grpo_doctor.findings.reward_functions import reward_seconds, typical
from grpo_doctor.findings.rule import Answer, Evidence, Finding, NotApplicable, Passed
from grpo_doctor.findings.shared import percent
from grpo_doctor.findings.span_counts import seconds_beside
from grpo_doctor.findings.view import RunView, timed_rule
from grpo_doctor.whatif import Edit, Replay

_TRL = signals.LENGTHS_LOGGED
_VERL = ("response_length/mean", "response_length/max")
RULE = timed_rule(
    "reward",
    signals.any_of(
        f"lengths of completions: metrics `{_TRL[0]}` and `{_TRL[1]}`, or verl's `{_VERL[0]}` "
        f"and `{_VERL[1]}`",
        signals.logged(*_TRL),
        signals.logged(*_VERL),
    ),
)
# What is sure to be saved, as a share of the step: less does not pay for a change of code.
MIN_SHARE = 0.05
# Nor does it where a step scores for milliseconds: tiny models with default flags lost 9 of 90 ms.
MIN_HIDDEN_S = 0.2
# Those of the last completions can only be computed when these are done.
MOST_HIDDEN = 0.90
_ADVICE = (
    "score each completion when it is done, in processes next to the engine, and wait only for "
    "the last ones"
)


@dataclass(frozen=True, slots=True)
class _Plan:
    """Seconds per step; `spread` is how much of a rollout is left when the mean completion ends."""

    rollout_s: float
    reward_s: float
    spread: float
    mean: float
    longest: float

    @property
    def hidden_s(self) -> float:
        return min(MOST_HIDDEN * self.reward_s, self.spread * self.rollout_s)


def check(view: RunView) -> Answer:
    """Compare what is scored after the rollout with the time that the rollout had for it."""
    plan = _plan(view)
    if plan is None:
        return NotApplicable(_why_no_plan(view))
    share = view.of_step(plan.hidden_s)
    if share < MIN_SHARE or plan.hidden_s < MIN_HIDDEN_S:
        return Passed(
            f"{percent(share, 1)} of the step is scoring that could run while completions are "
            f"generated"
        )
    scenario = "with completions scored as they finish (cautious end: half of that fits in)"
    change = Replay((Edit(("reward",), 1 - plan.hidden_s / plan.reward_s),), scenario, half=True)
    risk = "Rewards that compare completions need their whole group."
    return Finding(
        confidence=0.6,
        cost=share,
        phases=("reward",),
        evidence=(
            Evidence("rollout per step", plan.rollout_s, "s", "rollout spans"),
            Evidence("rewards after it, per step", plan.reward_s, "s", "reward spans"),
            Evidence("mean completion", plan.mean, "tokens", "metrics"),
            Evidence("longest completion", plan.longest, "tokens", "metrics"),
            Evidence("scoring that would fit into the rollout", plan.hidden_s, "s", "computed"),
        ),
        cause=f"Each step scores for {plan.reward_s:.3g} s after its rollout, whose mean "
        f"completion finished {plan.spread * plan.rollout_s:.3g} s before the longest.",
        fixes=(view.advice(_ADVICE, change, safety="needs-code", risk=risk),),
    )


def _plan(view: RunView) -> _Plan | None:
    scoring = typical(reward_seconds(view))
    # What a rollout with turns scores between them is not a part of this.
    following = min(scoring, seconds_beside(view, "reward", after="rollout"))
    lengths = _lengths(view)
    if following <= 0 or lengths is None:
        return None
    mean, longest = lengths
    rollout = view.seconds("rollout")
    return _Plan(rollout, following, max(0.0, 1 - mean / longest), mean, longest)


def _why_no_plan(view: RunView) -> str:
    if not typical(reward_seconds(view)):
        return "no time is spent in `reward`"
    if seconds_beside(view, "reward", after="rollout") <= 0:
        return "no `reward` begins right after a `rollout`"
    if any(view.metric_values(key) is not None for key in (_TRL[1], _VERL[1])):
        return "no step has a mean and a longest completion length above 0"
    return f"neither `{_TRL[1]}` nor `{_VERL[1]}` is logged"


def _lengths(view: RunView) -> tuple[float, float] | None:
    """Return the mean over the steps of the mean and of the longest completion."""
    for pair in (_TRL, _VERL):
        means, longest = (view.metric_values(key) for key in pair)
        if means is None or longest is None:
            continue
        valid = np.isfinite(means) & np.isfinite(longest) & (longest > 0)
        if valid.any():
            return float(means[valid].mean()), float(longest[valid].mean())
    return None
