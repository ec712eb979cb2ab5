"""One reward function decides, or one never counts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from grpo_doctor.analysis.learning import components
from grpo_doctor.findings import learning
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, NotApplicable, Passed
from grpo_doctor.findings.shared import percent
from grpo_doctor.findings.signals import REWARD_COMPONENTS, Signal
from grpo_doctor.findings.view import RunView, rule

POINTS = 10
_TEXT = (
    f"metrics `rewards/<function>/mean` and `rewards/<function>/std` at {POINTS} steps or more: "
    "grpo_doctor_probes.metrics(step, values)"
)
RULE = rule("learning", Signal(_TEXT, lambda a: bool(components(a.trace)), (REWARD_COMPONENTS,)))
# Variances add, not deviations: with four to one in deviation the others have a seventeenth of the
# variance of the sum, and turn the order of two completions only where the first sees hardly any
# difference. Two functions that both count were seen at two to one.
MIN_PART = 0.80
_WEIGHTS = "reward.weights"


@dataclass(frozen=True, slots=True)
class Component:
    """One function: its mean, and the deviation that it usually reaches at most, weighted. Where
    that is not logged, it is NaN, or 0 for a function whose mean is the same at every step."""

    name: str
    mean: float
    spread: float
    varies: bool
    points: int
    key: str


def check(view: RunView) -> Answer:
    """Look for a function without deviation, then for one with nearly all of it."""
    rewards = _components(view)
    dead = [reward for reward in rewards if reward.spread <= learning.EQUAL]
    whole = [reward for reward in rewards if not math.isnan(reward.spread)]
    if len(rewards if dead else whole) < 2:
        return NotApplicable(
            f"{len(whole)} reward function{'s' * (len(whole) != 1)} with a deviation at "
            f"{POINTS} steps or more; two are compared"
        )
    if len(dead) == len(rewards):
        return NotApplicable("no reward function distinguishes completions, see GD059")
    total = sum(reward.spread for reward in whole)
    lead = max(whole, key=lambda reward: reward.spread)
    if not dead and lead.spread < MIN_PART * total:
        return Passed(f"{lead.name} has {percent(lead.spread / total)} of the deviation")
    if dead:
        return _dead(view, rewards, dead, lead, total)
    part = percent(lead.spread / total)
    return Finding(
        severity="low",
        confidence=0.7,
        phases=("reward",),
        evidence=_evidence(rewards, [lead], total),
        cause=f"{lead.name} has {part} of the deviation of all reward functions together.",
        fixes=(_weigh_less(view, whole, lead),),
        headline=f"Reward `{lead.name}` decides alone",
    )


def _components(view: RunView) -> list[Component]:
    every = view.reward_components()
    weights = _weights(view, len(every))
    rewards = []
    for (name, (mean, spread)), weight in zip(every.items(), weights, strict=True):
        known = mean.finite if spread is None else spread.finite
        if len(known) < POINTS or not len(mean.finite):
            continue
        at, varies = mean.finite.values, bool(np.ptp(mean.finite.values) > learning.EQUAL)
        unlogged = math.nan if varies else 0.0
        usual = abs(weight) * (
            unlogged if spread is None else float(np.percentile(known.values, 90))
        )
        rewards.append(Component(name, float(at.mean()), usual, varies, len(known), known.key))
    return rewards


def _weights(view: RunView, count: int) -> list[float]:
    words = str(view.knob(_WEIGHTS) or "").replace(",", " ").strip("[] ").split()
    try:
        weights = [float(word) for word in words]
    except ValueError:
        weights = []
    return weights if len(weights) == count else [1.0] * count


def _evidence(
    rewards: list[Component], first: list[Component], total: float
) -> tuple[Evidence, ...]:
    """Of each function; those that the finding is about come first, as a digest shows few."""
    evidence = []
    for reward in dict.fromkeys([*first, *rewards]):
        where = f"{reward.key}, {reward.points} steps"
        evidence.append(Evidence(f"{reward.name}: mean", reward.mean, "", where))
        if total and not math.isnan(reward.spread):
            part, text = 100 * reward.spread / total, "usual largest deviation, weighted"
            evidence += [
                Evidence(f"{reward.name}: {text}", reward.spread, "", where),
                Evidence(f"{reward.name}: share of all deviation", part, "%", where),
            ]
    return tuple(evidence)


def _dead(
    view: RunView, rewards: list[Component], dead: list[Component], lead: Component, total: float
) -> Finding:
    never = [reward for reward in dead if reward.mean <= learning.EQUAL]
    culprits = never or dead
    names = ", ".join(f"`{reward.name}`" for reward in culprits)
    noun, verb = ("Reward", "returns") if len(culprits) == 1 else ("Rewards", "return")
    value = "0" if all(abs(reward.mean) <= learning.EQUAL for reward in culprits) else "the same"
    headline = f"{noun} {names} always {verb} {value}"
    if any(reward.varies for reward in culprits):
        headline = f"{noun} {names} {verb} the same for all completions of a step"
    too = lead.spread >= MIN_PART * total > 0 and len(rewards) > len(dead) + 1
    also = f" Of the others `{lead.name}` decides alone." if too else ""
    gets = "gets and returns" if len(culprits) == 1 else "get and return"
    text = f"print what {names} {gets} for a few completions"
    return Finding(
        severity="medium" if never else "info",
        confidence=0.9,
        phases=("reward",),
        evidence=_evidence(rewards, [*culprits, *dead], total),
        cause=f"{headline}, which adds nothing to any advantage.{also}",
        fixes=(learning.advice(view, text),),
        headline=headline,
    )


def _weigh_less(view: RunView, rewards: list[Component], lead: Component) -> Fix:
    """Set a weight with which the leader varies as much as the next function, if a flag exists."""
    following = max(reward.spread for reward in rewards if reward is not lead)
    factor = float(f"{following / lead.spread:.1g}")
    weights = _weights(view, len(rewards))
    setting = " ".join(
        f"{factor * weight if reward is lead else weight:.3g}"
        for reward, weight in zip(rewards, weights, strict=True)
    )
    if view.spell(_WEIGHTS, setting) is None:
        return learning.advice(view, f"weigh {lead.name} {factor:.3g} times as much")
    order = ", ".join(reward.name for reward in rewards)
    risk = f"Weighs {lead.name} {factor:.3g} times as much; the order is {order}."
    return learning.setting(view, _WEIGHTS, setting, risk=risk)
