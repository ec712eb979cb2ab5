"""Groups whose rewards are all equal."""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis.learning import Curve
from grpo_doctor.analysis.learning.shape import error_of_mean
from grpo_doctor.findings import learning
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, NotApplicable, Passed
from grpo_doctor.findings.shared import Severity, graded, percent
from grpo_doctor.findings.view import RunView, rule

POINTS = 5
RULE = rule(
    "learning",
    learning.metric("zero_variance", POINTS),
    uses=(*learning.FLAT_REWARD, learning.MISSING_RATIO),
)
# With binary rewards and 8 completions a prompt of pass rate 0.75 gives such a group in 10% of
# all cases, one of 0.9 in 43%: a third is a data set whose difficulty does not fit, two thirds
# leave one useful rollout in three.
GRADES: dict[Severity, float] = {"high": 0.67, "medium": 0.50, "low": 0.33}
_SAMPLING = "rollout.dynamic_sampling"
_GENERATIONS = "rollout.num_generations"
_ENOUGH = 16


def check(view: RunView) -> Answer:
    """Compare the mean share of such groups with the thresholds, less twice its error."""
    flat = learning.flat_from(view)
    scored = without_missing(view).before(flat)
    if len(scored) < POINTS:
        if flat is not None:
            return NotApplicable(f"all rewards are equal from step {flat} on, see GD059")
        return NotApplicable("too few steps have rewards, see GD058")
    share = float(scored.values.mean())
    sure = share - 2 * error_of_mean(scored.values)
    severity = graded(share, GRADES) if sure >= GRADES["low"] / 2 else None
    if severity is None:
        return Passed(f"{percent(share)} of the groups have equal rewards")
    collapse = view.found("GD052")
    if collapse and collapse.steps:
        earlier = scored.before(collapse.steps[0]).values
        if len(earlier) and graded(float(earlier.mean()), GRADES) is None:
            return NotApplicable(f"the entropy collapses at step {collapse.steps[0]}, see GD052")
    cost = share * learning.share(view)
    return Finding(
        severity=severity,
        confidence=0.95 if sure >= GRADES["low"] else 0.7,
        cost=cost,
        phases=("rollout", "reward", "train") if cost else (),
        evidence=_evidence(view, scored, share, cost),
        cause=f"{percent(share)} of the groups have identical rewards, so they contribute no "
        "gradient.",
        fixes=_fixes(view),
    )


def without_missing(view: RunView) -> Curve:
    """Return the share of groups with equal rewards, less the completions that have no reward."""
    zero_variance, missing = learning.finite(view, "zero_variance"), learning.missing_share(view)
    missing_by_step = dict(zip(missing.steps.tolist(), missing.values.tolist(), strict=True))
    lost = np.array([missing_by_step.get(step, 0.0) for step in zero_variance.steps.tolist()])
    return Curve(
        zero_variance.key, zero_variance.steps, np.maximum(0.0, zero_variance.values - lost)
    ).where(lost < 1)


def _evidence(
    view: RunView, zero_variance: Curve, share: float, cost: float
) -> tuple[Evidence, ...]:
    name = "groups with equal rewards"
    whole = Evidence(f"{name}, mean of the run", 100 * share, "%", learning.source(zero_variance))
    evidence = [*learning.over_run(name, zero_variance, "%"), whole]
    if cost:
        spans = "their share of rollout, reward, log-prob and train spans"
        evidence.append(Evidence("time spent on them, per step", cost * view.step_s, "s", spans))
    return tuple(evidence)


def _fixes(view: RunView) -> tuple[Fix, ...]:
    fixes: list[Fix] = []
    if view.now(_SAMPLING) is not True and view.spell(_SAMPLING, True) is not None:
        risk = "Steps take longer: more is sampled until the batch is full."
        fixes.append(learning.setting(view, _SAMPLING, True, risk=risk))
    generations = view.stated(_GENERATIONS)
    if isinstance(generations, int) and 1 < generations < _ENOUGH:
        risk = "The same number of completions then covers half as many prompts per step."
        fixes.append(learning.setting(view, _GENERATIONS, 2 * generations, risk=risk))
    text = "sample each prompt a few times; remove those always or never solved"
    fixes.append(learning.advice(view, text))
    return tuple(fixes)
