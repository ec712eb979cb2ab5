"""Much of the batch is clipped."""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis.learning import Curve
from grpo_doctor.analysis.learning.shape import ends, onset, smooth
from grpo_doctor.findings import learning
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, NotApplicable, Passed
from grpo_doctor.findings.shared import Severity, graded, percent
from grpo_doctor.findings.view import RunView, rule

POINTS = 10
RULE = rule("learning", learning.metric("clip", POINTS))
# PPO's own runs clip 5 to 20% of actions; language models, token by token, 0.1 to 5%.
GRADES: dict[Severity, float] = {"high": 0.40, "medium": 0.20, "low": 0.10}
# Consecutive steps that are more than one odd batch.
WHILE = 3


def check(view: RunView) -> Answer:
    """Judge the last steps, and steps in a row that are worse."""
    if view.now("train.importance_level") == "sequence":
        return NotApplicable("ratios are per sequence, which clips many tokens by design")
    clip = learning.finite(view, "clip")
    _, last = ends(clip)
    severity = graded(last, GRADES)
    # What each of so many steps in a row reaches, at most, and those steps.
    minima = np.lib.stride_tricks.sliding_window_view(clip.values, WHILE).min(axis=1)
    first = int(np.argmax(minima))
    worst, at = float(minima[first]), tuple(clip.steps[first : first + WHILE].tolist())
    if severity is None and worst < GRADES["medium"]:
        return Passed(
            f"{percent(last, 1)} of the tokens are clipped in the median of the last "
            f"{learning.counted_steps(clip)}"
        )
    if severity is None:
        return _for_a_while(view, clip, worst, at)
    since = onset(clip, smooth(clip.values, 3) >= GRADES["low"])
    return Finding(
        severity=severity,
        confidence=0.9,
        phases=("train",),
        evidence=(
            *learning.over_run("tokens clipped", clip, "%"),
            *learning.step_evidence("a tenth or more from step", since, clip),
        ),
        cause=f"{percent(last)} of the tokens are clipped in the median of the last "
        f"{learning.counted_steps(clip)} and have no gradient.",
        fixes=_fixes(view),
        steps=learning.from_step(clip, since),
    )


def _for_a_while(view: RunView, clip: Curve, worst: float, at: tuple[int, ...]) -> Finding:
    """Few steps that clip much: often those in which a policy is lost, and nothing is clipped of
    what is left of it."""
    return Finding(
        severity="medium" if worst >= GRADES["high"] else "low",
        confidence=0.8,
        phases=("train",),
        evidence=(
            Evidence("tokens clipped", 100 * float(clip.values.mean()), "%", learning.source(clip)),
            Evidence(
                f"in steps {at[0]} to {at[-1]}, at least", 100 * worst, "%", learning.source(clip)
            ),
        ),
        cause=f"In steps {at[0]} to {at[-1]} at least {percent(worst)} of the tokens are clipped "
        f"and have no gradient: the policy moves too far for one batch.",
        fixes=_fixes(view),
        headline=f"Much of the batch is clipped in steps {at[0]} to {at[-1]}",
        steps=at,
    )


def _fixes(view: RunView) -> tuple[Fix, ...]:
    return (
        *learning.fewer_iterations(view),
        *learning.slower(view),
        *learning.clip_gradients(view),
    )
