"""The policy drifts too far from its reference."""

from __future__ import annotations

from grpo_doctor.analysis.learning.shape import ends, onset, smooth
from grpo_doctor.findings import learning
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Passed
from grpo_doctor.findings.shared import Severity, graded
from grpo_doctor.findings.view import RunView, rule

POINTS = 10
RULE = rule("learning", learning.metric("kl", POINTS), uses=("reward",))
# Nats per token. Runs that end well stay below 0.1 to 0.3; at 0.5 the sampled tokens are 1.6 times
# likelier than under the reference on average, at 2 more than 7 times.
GRADES: dict[Severity, float] = {"high": 2.0, "medium": 0.5}
# At its first step a policy is its reference, and the divergence 0. One that is large there and has
# not doubled since did not drift: another model is the reference, or the estimate is biased.
AWAY = 2.0
_APART = "The policy is far from its reference from the first step on"
_CHECK_REFERENCE = "check that the reference is the model that training started from"


def check(view: RunView) -> Answer:
    """Judge the last steps."""
    numbers = learning.finite(view, "kl")
    first, last = ends(numbers)
    severity = graded(last, GRADES)
    goes = f"KL divergence goes from {first:.3g} to {last:.3g} nats per token"
    if severity is None:
        return Passed(goes)
    if severity == "medium" and learning.reward_rises(view):
        return Passed(f"{goes}, and the reward rises with it")
    since = onset(numbers, smooth(numbers.values, 3) >= GRADES["medium"])
    if apart := numbers.values[0] >= GRADES["medium"] and last < AWAY * numbers.values[0]:
        goes += ": the policy was not the reference at the first step already"
    fixes = (*learning.slower(view), *learning.stay_close(view), *learning.clip_gradients(view))
    if apart:
        fixes = (learning.advice(view, _CHECK_REFERENCE), *learning.stay_close(view))
    return Finding(
        severity=severity,
        confidence=0.9,
        evidence=(
            *learning.over_run("KL divergence", numbers, "nats"),
            Evidence("largest", float(numbers.values.max()), "nats", learning.source(numbers)),
            *learning.step_evidence("above 0.5 nats from step", since, numbers),
        ),
        cause=f"{goes}.",
        fixes=fixes,
        headline=_APART if apart else "" if since is None else f"{RULE.title} at step {since}",
        steps=learning.from_step(numbers, since),
    )
