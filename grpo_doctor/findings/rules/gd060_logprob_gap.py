"""The rollout engine and the trainer disagree on probabilities."""

from __future__ import annotations

from grpo_doctor.analysis.learning.shape import ends, onset, smooth
from grpo_doctor.findings.learning import (
    finite,
    from_step,
    learning_advice,
    learning_setting,
    metric,
    over_run,
    step_evidence,
)
from grpo_doctor.findings.rule import Answer, Finding, Fix, Passed
from grpo_doctor.findings.shared import Severity, graded
from grpo_doctor.findings.view import RunView, rule

POINTS = 3
RULE = rule(__name__, __doc__, "learning", metric("gap", POINTS))
# Nats per token, mean of |engine - trainer|. Float32 differs by 1e-6, bfloat16 by 0.005 to 0.03;
# at 0.1 the ratio of a token is off by a tenth on average, half of the usual clipping bound.
GRADES: dict[Severity, float] = {"high": 0.30, "medium": 0.10, "low": 0.05}
_CORRECTION = "rollout.importance_correction"


def check(view: RunView) -> Answer:
    """Judge the last tenth of the run."""
    gap = finite(view, "gap")
    first, last = ends(gap)
    severity = graded(last, GRADES)
    if severity is None:
        return Passed(
            f"log-probs differ by {last:.2g} nats per token at last, {first:.2g} at first"
        )
    grows = last > 2 * first
    since = onset(gap, smooth(gap.values, 3) >= GRADES["low"])
    return Finding(
        severity=severity,
        confidence=0.9,
        phases=("rollout", "sync"),
        evidence=(
            *over_run("difference", gap, "nats"),
            *step_evidence("0.05 or more from step", since, gap),
        ),
        cause=f"Engine and trainer differ by {last:.2g} nats per token on average"
        + (", more and more." if grows else "."),
        fixes=_fixes(view, grows),
        steps=from_step(gap, since),
    )


def _fixes(view: RunView, grows: bool) -> tuple[Fix, ...]:
    fixes: list[Fix] = []
    if grows:
        text = "compare the engine's weights with the trainer's after a sync: some may be missing"
        fixes.append(learning_advice(view, text, safety="needs-code"))
    if view.now(_CORRECTION) is not True and view.spell(_CORRECTION, True) is not None:
        risk = "Needs the engine's log-probs."
        fixes.append(learning_setting(view, _CORRECTION, True, risk=risk))
    text = "run engine and trainer in the same precision: fp16 for both, or a float32 head"
    fixes.append(learning_advice(view, text, safety="changes-numerics"))
    return tuple(fixes)
