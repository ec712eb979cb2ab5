"""The policy drifts too far from its reference.

## What it means

The KL divergence from the reference model, per token, is large or keeps growing.

## Why it costs

Far from the reference the policy usually gains reward by tricks, and its language degrades: the run
continues, but its result is not usable.

## Evidence shown

The KL divergence in the first and the last tenth of the run, its largest value, and the step from
which it stayed above the threshold. NaN is not counted: GD064 reports it.

## Fix

A lower learning rate; a KL term twice as heavy; clipping of the gradients at a norm of 1.

## When it is wrong

A policy that learns something new moves: up to 2 nats are not reported while the reward rises. Long
runs without a KL term may drift far on purpose and end well. The usual estimator is an average of
exponentials, so one unusual token can make a step's value huge: medians are judged, not single
steps.

## References

- https://arxiv.org/abs/2402.03300 (DeepSeekMath: the KL term and its estimator)
- http://joschu.net/blog/kl-approx.html
"""

from __future__ import annotations

from grpo_doctor.analysis.learning.shape import ends, onset, smooth
from grpo_doctor.findings.learning import (
    finite,
    from_step,
    metric,
    over_run,
    reward_rises,
    source,
    step_evidence,
)
from grpo_doctor.findings.learning_fixes import clip_gradients, slower, stay_close
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Passed
from grpo_doctor.findings.severity import Severity, graded
from grpo_doctor.findings.view import RunView, rule

POINTS = 10
RULE = rule(__name__, __doc__, "learning", metric("kl", POINTS), uses=("reward",))
# Nats per token. Runs that end well stay below 0.1 to 0.3; at 0.5 the sampled tokens are 1.6 times
# likelier than under the reference on average, at 2 more than 7 times.
GRADES: dict[Severity, float] = {"high": 2.0, "medium": 0.5}


def check(view: RunView) -> Answer:
    """Judge the last tenth of the run."""
    numbers = finite(view, "kl")
    first, last = ends(numbers)
    severity = graded(last, GRADES)
    goes = f"KL divergence goes from {first:.3g} to {last:.3g} nats per token"
    if severity is None:
        return Passed(goes)
    if severity == "medium" and reward_rises(view):
        return Passed(f"{goes}, and the reward rises with it")
    since = onset(numbers, smooth(numbers.values, 3) >= GRADES["medium"])
    return Finding(
        severity=severity,
        confidence=0.9,
        evidence=(
            *over_run("KL divergence", numbers, "nats"),
            Evidence("largest", float(numbers.values.max()), "nats", source(numbers)),
            *step_evidence("above 0.5 nats from step", since, numbers),
        ),
        cause=f"{goes}.",
        fixes=(*slower(view), *stay_close(view), *clip_gradients(view)),
        headline="" if since is None else f"{RULE.title} at step {since}",
        steps=from_step(numbers, since),
    )
