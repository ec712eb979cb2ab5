"""Group size too small for reliable advantages.

## What it means

The baseline of each completion is the mean of its group, and its scale often the group's standard
deviation. With two or three completions both are little more than noise; with four they are
rough estimates.

## Why it costs

With two completions and scaled advantages, the better one gets the same advantage however small the
difference: the model learns noise. Groups that are all right or all wrong contribute no gradient.

## Evidence shown

The number of completions per prompt, the error of a group's mean in units of the rewards' own
deviation, and, for a reward between 0 and 1, the share of groups expected to have equal rewards.

## Fix

More completions per prompt. With the same number per step that means fewer prompts, in the same
time.

## When it is wrong

Two completions per prompt have been reported to keep 98% of the result of sixteen at an eighth of
the rollouts, as a contrast of one good and one bad answer: then small groups are a choice.

## References

- https://arxiv.org/abs/2402.03300 (DeepSeekMath: 64 completions per prompt)
- https://arxiv.org/abs/2503.20783 (Dr. GRPO: what scaling by the deviation does)
- https://arxiv.org/abs/2510.00977 (It takes two: the case for two)
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from grpo_doctor.findings import signals
from grpo_doctor.findings.learning import finite, source
from grpo_doctor.findings.learning_fixes import learning_setting
from grpo_doctor.findings.rule import Answer, Evidence, Finding, NotApplicable, Passed
from grpo_doctor.findings.severity import percent
from grpo_doctor.findings.view import RunView, rule

RULE = rule(__name__, __doc__, "learning", signals.SETTINGS, uses=("reward",))
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
    reward = finite(view, "reward")
    if len(reward) and reward.values.min() >= 0 and reward.values.max() <= 1:
        rate = float(reward.values.mean())
        equal = 100 * (rate**count + (1 - rate) ** count)
        text = "expected groups with equal rewards, if rewards are only right or wrong"
        evidence.append(Evidence(text, equal, "%", source(reward)))
    risk = "The same number of completions then covers fewer prompts per step."
    return Finding(
        severity="high" if count == 1 else "medium" if count <= MEDIUM_GENERATIONS else "low",
        confidence=0.8 if count <= MEDIUM_GENERATIONS else 0.5,
        phases=("rollout",),
        evidence=tuple(evidence),
        cause=f"With {count} completion{'s' * (count != 1)} per prompt a group's mean is off by "
        f"{percent(1 / math.sqrt(count))} of the deviation of its rewards.",
        fixes=(learning_setting(view, _KNOB, TARGET, risk=risk),),
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
