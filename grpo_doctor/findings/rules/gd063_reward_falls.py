"""The reward falls after a peak."""

from __future__ import annotations

import numpy as np

from grpo_doctor.findings import learning
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Passed
from grpo_doctor.findings.view import RunView, rule

POINTS = 40
RULE = rule("learning", learning.metric("reward", POINTS), uses=("reward_std",))
# The peak is the best of many windows, so luck alone puts it two to three errors above the rest.
MIN_ERRORS = 6.0
# Half of what was gained, and a difference that a single batch would show: a quarter of the
# deviation between completions.
MIN_LOST_SHARE = 0.50
MIN_OF_DEVIATION = 0.25


def check(view: RunView) -> Answer:
    """Compare the best stretch with the last one."""
    reward = learning.finite(view, "reward")
    fall = learning.fall_of(reward)
    drop = fall.peak - fall.end
    errors = drop / fall.error if fall.error else float("inf")
    spread = learning.finite(view, "reward_std")
    typical = float(np.median(spread.values)) if len(spread) else 0.0
    gained = fall.peak - fall.start
    min_drop = max(MIN_LOST_SHARE * gained, MIN_OF_DEVIATION * typical)
    if drop <= 0 or errors < MIN_ERRORS or drop < min_drop:
        return Passed(f"the reward is {fall.peak:.3g} at best and {fall.end:.3g} at the end")
    evidence = _evidence(fall, errors, learning.source(reward))
    if gained <= 0:  # the largest window inside the run is no peak
        return Finding(
            severity="high",
            confidence=min(0.95, 0.6 + errors / 50),
            evidence=(evidence[0], *evidence[2:]),
            cause=f"The reward falls from an initial {fall.start:.3g} to {fall.end:.3g}.",
            fixes=(*learning.slower(view), *learning.stay_close(view)),
            headline="The reward falls from the start",
        )
    back = f"go back to a checkpoint before step {fall.peak_step}"
    risk = "The steps since the peak are lost; they made the model worse."
    below = fall.end < fall.start - 2 * fall.error
    return Finding(
        severity="high" if below else "medium",
        confidence=min(0.95, 0.6 + errors / 50),
        evidence=(*evidence, *learning.step_evidence("peak at step", fall.peak_step, reward)),
        cause=f"The reward falls from {fall.peak:.3g} at step {fall.peak_step} to {fall.end:.3g}, "
        + ("below its initial value." if below else f"from an initial {fall.start:.3g}."),
        fixes=(
            learning.advice(view, back, risk=risk),
            *learning.slower(view),
            *learning.stay_close(view),
        ),
        headline=f"The reward falls after its peak at step {fall.peak_step}",
        steps=learning.from_step(reward, fall.peak_step),
    )


def _evidence(fall: learning.Fall, errors: float, where: str) -> tuple[Evidence, ...]:
    return (
        Evidence("initial reward", fall.start, "", where),
        Evidence("peak reward", fall.peak, "", where),
        Evidence("final reward", fall.end, "", where),
        Evidence("fall, in standard errors", min(errors, 1e6), "", where),
    )
