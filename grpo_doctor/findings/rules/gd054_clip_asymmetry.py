"""Clipping limits one direction only."""

from __future__ import annotations

import numpy as np

from grpo_doctor.findings import learning
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Passed
from grpo_doctor.findings.shared import percent
from grpo_doctor.findings.view import RunView, rule

POINTS = 10
RULE = rule("learning", learning.metric("clip_low", POINTS), learning.metric("clip_high", POINTS))
# Three to one, in four of five steps: a coin's luck does neither over ten steps.
MIN_RATIO = 3.0
MIN_STEPS_SHARE = 0.80
# Below one token in fifty, clipping shapes nothing.
MIN_CLIPPED = 0.02


def check(view: RunView) -> Answer:
    """Compare both sides, overall and step by step."""
    low, high = learning.finite(view, "clip_low"), learning.finite(view, "clip_high")
    shared = np.intersect1d(low.steps, high.steps)
    below = low.values[np.isin(low.steps, shared)]
    above = high.values[np.isin(high.steps, shared)]
    if len(shared) < POINTS or below.mean() + above.mean() < MIN_CLIPPED:
        return Passed(f"only {percent(float(below.mean() + above.mean()), 1)} are clipped at all")
    up = bool(above.mean() > below.mean())
    larger, smaller = (above, below) if up else (below, above)
    often = float((larger > smaller).mean())
    ratio = float(larger.mean() / smaller.mean()) if smaller.mean() else float("inf")
    if ratio < MIN_RATIO or often < MIN_STEPS_SHARE:
        return Passed(f"the larger side has {ratio:.1f} times the smaller one")
    side = "upwards" if up else "downwards"
    fixes = (
        learning.clip_higher(view)
        if up
        else (*learning.fewer_iterations(view), *learning.slower(view))
    )
    return Finding(
        severity="low",
        confidence=0.7,
        phases=("train",),
        evidence=(
            Evidence("clipped upwards", 100 * float(above.mean()), "%", learning.source(high)),
            Evidence("clipped downwards", 100 * float(below.mean()), "%", learning.source(low)),
            Evidence(f"steps in which {side} leads", 100 * often, "%", learning.source(low)),
        ),
        cause=f"{percent(float(larger.mean()), 1)} of the tokens are clipped {side}, "
        f"{percent(float(smaller.mean()), 1)} the other way.",
        fixes=fixes
        or (
            learning.advice(
                view,
                "the upper bound is already wide: use a lower learning rate or fewer passes per "
                "rollout",
            ),
        ),
        headline=f"Clipping limits {side} only",
    )
