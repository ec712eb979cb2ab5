"""The policy's entropy collapses."""

from __future__ import annotations

from grpo_doctor.analysis.learning import Curve
from grpo_doctor.analysis.learning.shape import (
    Arrival,
    arrival,
    end_points,
    ends,
    onset,
    rising,
    smooth,
)
from grpo_doctor.findings.learning import (
    clip_higher,
    counted_steps,
    finite,
    from_step,
    learning_advice,
    metric,
    reward_rises,
    slower,
    source,
    stay_close,
    step_evidence,
)
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, Passed
from grpo_doctor.findings.shared import Severity
from grpo_doctor.findings.view import RunView, rule

POINTS = 20
RULE = rule(__name__, __doc__, "learning", metric("entropy", POINTS), uses=("reward",))
# Runs that go well lose half of their entropy early and then hold it; below a tenth the
# completions of a group are near copies.
FLOOR_SHARE = 0.10
# Who was below it and crawls back to less than twice as much has not recovered.
RECOVERED_SHARE = 0.20
# A projection is only made once a third is gone, on a fall beyond noise, by a law that fits,
# and not further ahead than the run is long.
MIN_LOST = 0.33
MIN_FALLING = -0.60
MIN_FIT = 0.50
# Half of the run is what the law goes through: fewer than 20 points of it bend by luck.
PROJECTION_POINTS = 40
# 0.05 nats: e^0.05, one token in twenty has any choice. Less at the start is another matter.
MIN_START = 0.05
# A collapse by clipped exploration takes hundreds of steps (DAPO, arXiv 2503.14476, figure 2b);
# within the first few the updates themselves are too large.
SUDDEN = 20
_SMOOTH_SHARE = 0.05


def check(view: RunView) -> Answer:
    """Look for entropy that stays below the floor, else for a fall that will soon reach it."""
    entropy = finite(view, "entropy")
    # The highest of the first tenth: a collapse within it would hide in its median.
    first = float(entropy.values[: end_points(len(entropy))].max())
    last = ends(entropy)[1]
    if first < MIN_START:
        return Passed(f"entropy starts at {first:.3g} nats, too low for a collapse")
    floor = FLOOR_SHARE * first
    since = _fell_at(entropy, first)
    coming = None if since is not None else _coming(entropy, floor, first, last)
    if since is None and coming is None:
        return Passed(f"entropy goes from {first:.3g} to {last:.3g} nats")
    rises = reward_rises(view, since)
    severity: Severity = "high" if coming is None and not reward_rises(view) else "medium"
    return Finding(
        severity="low" if rises else severity,
        confidence=0.9 if coming is None else 0.5 + 0.4 * max(0.0, coming.fit),
        evidence=_evidence(entropy, (first, last), since, coming),
        cause=f"Entropy goes from {first:.3g} to {last:.3g} nats per token and "
        + _words(since, coming, below=last <= floor)
        + ("; the reward still rises." if rises else "."),
        fixes=_fixes(view, sudden=since is not None and since - entropy.steps[0] < SUDDEN)
        or (learning_advice(view, "add an entropy bonus or sample at a higher temperature"),),
        headline=(
            f"The policy's entropy collapses at step {since}"
            if coming is None
            else f"The policy's entropy will collapse by step {coming.step}"
        ),
        steps=from_step(entropy, since),
    )


def _fixes(view: RunView, *, sudden: bool) -> tuple[Fix, ...]:
    wider, smaller = clip_higher(view), slower(view)
    return (
        (*smaller, *wider, *stay_close(view)) if sudden else (*wider, *smaller, *stay_close(view))
    )


def _fell_at(entropy: Curve, first: float) -> int | None:
    """Return the step at which it fell below the floor, not to come back; None if it did not."""
    smoothed = smooth(entropy.values, max(3, round(_SMOOTH_SHARE * len(entropy))))
    low_from = onset(entropy, smoothed <= RECOVERED_SHARE * first)
    if low_from is None:
        return None
    fallen = entropy.steps[(smoothed <= FLOOR_SHARE * first) & (entropy.steps >= low_from)]
    return int(fallen[0]) if len(fallen) else None


def _words(since: int | None, coming: Arrival | None, *, below: bool) -> str:
    if coming is not None:
        return f"falls towards a tenth of its initial value, reached at about step {coming.step}"
    if below:
        return f"has stayed below a tenth of its initial value since step {since}"
    return (
        f"fell below a tenth of its initial value at step {since}, without coming back to a fifth"
    )


def _coming(entropy: Curve, floor: float, first: float, last: float) -> Arrival | None:
    if last > (1 - MIN_LOST) * first or len(entropy) < PROJECTION_POINTS:
        return None
    middle = entropy.steps[len(entropy) // 2]
    earlier, half = entropy.before(int(middle)), entropy.where(entropy.steps >= middle)
    if last >= smooth(earlier.values, end_points(len(entropy))).min():
        return None
    meets = arrival(half, floor)
    span = int(entropy.steps[-1] - entropy.steps[0])
    if meets is None or meets.fit < MIN_FIT or rising(half.values) > MIN_FALLING:
        return None
    return meets if entropy.steps[-1] < meets.step <= entropy.steps[-1] + span else None


def _evidence(
    entropy: Curve, shown: tuple[float, float], since: int | None, coming: Arrival | None
) -> tuple[Evidence, ...]:
    evidence = [
        Evidence("initial entropy", shown[0], "nats", source(entropy)),
        Evidence(f"entropy, last {counted_steps(entropy)}", shown[1], "nats", source(entropy)),
    ]
    evidence += step_evidence("below a tenth of its initial value from step", since, entropy)
    if coming is not None:
        evidence += step_evidence(f"{coming.law} fall reaches it at step", coming.step, entropy)
        evidence.append(Evidence("variance explained by this fit", coming.fit, "", source(entropy)))
    return tuple(evidence)
