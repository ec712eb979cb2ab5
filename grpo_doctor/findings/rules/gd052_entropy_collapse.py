"""The policy's entropy collapses."""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis.learning import Curve, shape
from grpo_doctor.findings import learning
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, Passed
from grpo_doctor.findings.view import RunView, rule

POINTS = 20
RULE = rule("learning", learning.metric("entropy", POINTS), uses=("reward",))
# Runs that go well lose half of their entropy early and then hold it; below a tenth the
# completions of a group are near copies.
FLOOR_SHARE = 0.10
# Who was below it and crawls back to less than twice as much has not recovered.
RECOVERED_SHARE = 0.20
# 0.05 nats: e^0.05, one token in twenty has any choice. Less at the start is another matter.
MIN_START = 0.05
# A collapse by clipped exploration takes hundreds of steps (DAPO, arXiv 2503.14476, figure 2b);
# within the first few the updates themselves are too large.
SUDDEN = 20
_SMOOTH_SHARE = 0.05


def check(view: RunView) -> Answer:
    """Look for entropy that fell below the floor and did not come back."""
    entropy = learning.finite(view, "entropy")
    first, last = _initial(entropy), shape.ends(entropy)[1]
    if first < MIN_START:
        return Passed(f"entropy starts at {first:.3g} nats, too low for a collapse")
    since = _fell_at(entropy, first)
    if since is None:
        return Passed(f"entropy goes from {first:.3g} to {last:.3g} nats")
    rises = learning.reward_rises(view, since)
    below = "has stayed below" if last <= FLOOR_SHARE * first else "fell below"
    again = "" if last <= FLOOR_SHARE * first else ", without coming back to a fifth"
    when = "since step" if not again else "at step"
    where = learning.source(entropy)
    return Finding(
        severity="low" if rises else "medium" if learning.reward_rises(view) else "high",
        confidence=0.9,
        evidence=(
            Evidence("initial entropy", first, "nats", where),
            Evidence(
                f"entropy, median of the last {learning.counted_steps(entropy)}",
                last,
                "nats",
                where,
            ),
            *learning.step_evidence("below a tenth of its initial value from step", since, entropy),
        ),
        cause=f"Entropy goes from {first:.3g} to {last:.3g} nats per token and {below} a tenth of "
        f"its initial value {when} {since}{again}" + ("; the reward still rises." * rises or "."),
        fixes=_fixes(view, sudden=since - entropy.steps[0] < SUDDEN)
        or (learning.advice(view, "add an entropy bonus or sample at a higher temperature"),),
        headline=f"The policy's entropy collapses at step {since}",
        steps=learning.from_step(entropy, since),
    )


def _fixes(view: RunView, *, sudden: bool) -> tuple[Fix, ...]:
    wider, smaller = learning.clip_higher(view), learning.slower(view)
    return (
        (*smaller, *wider, *learning.stay_close(view))
        if sudden
        else (*wider, *smaller, *learning.stay_close(view))
    )


def _initial(entropy: Curve) -> float:
    """Return the first step's, or the highest that most of five steps reach in the first tenth: a
    collapse within it would hide in its median, and a lone spike is no level to fall from."""
    begin = entropy.values[: shape.end_points(len(entropy))]
    held = np.median(np.lib.stride_tricks.sliding_window_view(begin, shape.END_POINTS), axis=1)
    return float(max(begin[0], held.max()))


def _fell_at(entropy: Curve, first: float) -> int | None:
    """Return the step at which it fell below the floor, not to come back; None if it did not."""
    smoothed = shape.smooth(entropy.values, max(3, round(_SMOOTH_SHARE * len(entropy))))
    low_from = shape.onset(entropy, smoothed <= RECOVERED_SHARE * first)
    if low_from is None:
        return None
    fallen = entropy.steps[(smoothed <= FLOOR_SHARE * first) & (entropy.steps >= low_from)]
    return int(fallen[0]) if len(fallen) else None
