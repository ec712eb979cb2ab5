"""Group size too small for reliable advantages."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from grpo_doctor.findings import learning, signals
from grpo_doctor.findings.rule import Answer, Evidence, Finding, NotApplicable, Passed
from grpo_doctor.findings.shared import percent
from grpo_doctor.findings.view import RunView, rule

RULE = rule("learning", signals.SETTINGS, uses=("reward",))
# The mean of n completions is off by 1/sqrt(n) of their deviation: 71% for two, 50% for four,
# 35% for eight, the frameworks' default. Four do work in many runs: that is only said.
MIN_GENERATIONS = 5
MEDIUM_GENERATIONS = 3
TARGET = 8
_KNOB = "rollout.num_generations"


def check(view: RunView) -> Answer:
    """Look at the setting."""
    count = view.knob(_KNOB)
    if not isinstance(count, int) or count < 1:
        return NotApplicable("the number of completions per prompt was not recorded")
    if (estimator := _without_groups(view)) is not None:
        return NotApplicable(f"advantages of {estimator} do not come from a group")
    if count >= MIN_GENERATIONS:
        return Passed(f"{count} completions per prompt")
    evidence = [
        Evidence("completions per prompt", count, "", "settings"),
        Evidence(
            "error of a group's mean, share of the deviation", 100 / math.sqrt(count), "%", _KNOB
        ),
    ]
    reward = learning.finite(view, "reward")
    if len(reward) and reward.values.min() >= 0 and reward.values.max() <= 1:
        rate = float(reward.values.mean())
        equal = 100 * (rate**count + (1 - rate) ** count)
        text = "expected groups with equal rewards, if rewards are only right or wrong"
        evidence.append(Evidence(text, equal, "%", learning.source(reward)))
    risk = "The same number of completions then covers fewer prompts per step."
    return Finding(
        severity="high" if count == 1 else "medium" if count <= MEDIUM_GENERATIONS else "low",
        confidence=0.8 if count <= MEDIUM_GENERATIONS else 0.5,
        phases=("rollout",),
        evidence=tuple(evidence),
        cause=f"With {count} completion{'s' * (count != 1)} per prompt a group's mean is off by "
        f"{percent(1 / math.sqrt(count))} of the deviation of its rewards.",
        fixes=(learning.setting(view, _KNOB, TARGET, risk=risk),),
    )


_ESTIMATORS = re.compile(r"(?:adv|advantage)[._]?estimator[=\s]+['\"]?(\w+)")
_OF_GROUPS = re.compile(r"grpo|group|rloo|dr_|opo|gpg|passk")


def _without_groups(view: RunView) -> str | None:
    """How verl or OpenRLHF computes advantages, where that is by a critic or a running mean."""
    run = view.trace.run
    algorithm = run.config.get("algorithm")
    said = algorithm.get("adv_estimator") if isinstance(algorithm, Mapping) else None
    said = said or run.config.get("advantage_estimator")
    if said is None and (match := _ESTIMATORS.search(" ".join(run.command))):
        said = match[1]
    return None if said is None or _OF_GROUPS.search(str(said)) else str(said)
