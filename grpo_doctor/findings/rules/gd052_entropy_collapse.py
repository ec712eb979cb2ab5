"""The policy's entropy collapses.

## What it means

The model's distribution over next tokens gets narrow: the completions of a prompt become copies of
each other, and what is never sampled can't be learned.

## Why it costs

Without differences between completions there is no advantage; from the collapse on the run mostly
burns time. It seldom recovers by itself, so the checkpoint before it is the one to go back to.

## Evidence shown

The entropy at the begin and at the end of the run, the step from which on it stayed below the floor
of a tenth of its start, or the step at which it will arrive there: the better of a line and an
exponential through the second half of the run. Also whether the reward still rose meanwhile.

## Fix

In this order: a higher upper clipping bound, which lets rare tokens gain; a lower learning rate;
a KL term, or entropy in the loss where the framework has it. They change what is learned and not
the step time.

## When it is wrong

A task with one right answer is solved with little entropy: while the reward still rises the finding
is of low severity, and of medium if it rose before. A policy that starts with hardly any entropy
has little to lose and is not judged.

## References

- https://arxiv.org/abs/2505.22617 (The entropy mechanism of RL for reasoning language models)
- https://arxiv.org/abs/2503.14476 (DAPO, section 3.1: clip-higher)
"""

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
    LEARNS_OTHERWISE,
    from_step,
    known,
    metric,
    reward_rises,
    source,
    step_evidence,
)
from grpo_doctor.findings.learning_fixes import clip_higher, slower, stay_close
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Passed, Rule, Severity
from grpo_doctor.findings.view import RunView
from grpo_doctor.whatif import Edit

POINTS = 20
RULE = Rule(
    id="GD052",
    slug="entropy-collapse",
    title="The policy's entropy collapses",
    family="learning",
    needs=(metric("entropy", POINTS),),
    uses=("reward",),
)
# Runs that go well lose half of their entropy early and then hold it; below a tenth the
# completions of a group are near copies.
FLOOR_SHARE = 0.10
# A projection is only made once a third is gone, on a fall that is no noise, by a law that fits,
# and not further ahead than the run is long.
MIN_LOST = 0.33
MIN_FALLING = -0.60
MIN_FIT = 0.50
# Half of the run is what the law goes through: fewer than 20 points of it bend by luck.
PROJECTION_POINTS = 40
# 0.05 nats: e^0.05, one token in twenty has any choice. Less at the start is another matter.
MIN_START = 0.05
_SMOOTH_SHARE = 0.05


def check(view: RunView) -> Answer:
    """Looks for a lasting stay below the floor, else for a fall that is about to get there."""
    entropy = known(view, "entropy")
    # The highest of the first tenth: a collapse within it would hide in its median.
    first = float(entropy.values[: end_points(len(entropy))].max())
    last = ends(entropy)[1]
    if first < MIN_START:
        return Passed(f"entropy starts at {first:.3g} nats, too low for a collapse")
    floor = FLOOR_SHARE * first
    width = max(3, round(_SMOOTH_SHARE * len(entropy)))
    since = onset(entropy, smooth(entropy.values, width) <= floor)
    coming = None if since is not None else _coming(entropy, floor, first, last)
    if since is None and coming is None:
        return Passed(f"entropy goes from {first:.3g} to {last:.3g} nats")
    rises = reward_rises(view, since)
    what = (
        f"has stayed below a tenth of its start since step {since}"
        if coming is None
        else f"falls towards a tenth of its start, which it meets at about step {coming.step}"
    )
    return Finding(
        severity="low" if rises else _severity(view, arrived=coming is None),
        confidence=0.9 if coming is None else 0.5 + 0.4 * max(0.0, coming.fit),
        cost=0.0,
        phases=(),
        ranks=(),
        evidence=_evidence(entropy, (first, last), since, coming),
        cause=f"Entropy goes from {first:.3g} to {last:.3g} nats per token and {what}"
        + ("; the reward still rises." if rises else "."),
        fixes=(*clip_higher(view), *slower(view), *stay_close(view))
        or (
            view.advice(
                "add an entropy bonus or sample at a higher temperature",
                LEARNS_OTHERWISE,
                safety="changes-algorithm",
                risk="",
            ),
        ),
        headline=(
            f"The policy's entropy collapses at step {since}"
            if coming is None
            else f"The policy's entropy will collapse by step {coming.step}"
        ),
        steps=from_step(entropy, since),
    )


def counterfactual(view: RunView) -> tuple[Edit, ...]:
    """None: it changes what is learned."""
    del view
    return ()


def _severity(view: RunView, *, arrived: bool) -> Severity:
    return "high" if arrived and not reward_rises(view) else "medium"


def _coming(found: Curve, floor: float, first: float, last: float) -> Arrival | None:
    if last > (1 - MIN_LOST) * first or len(found) < PROJECTION_POINTS:
        return None
    half = found.where(found.steps >= found.steps[len(found) // 2])
    meets = arrival(half, floor)
    span = int(found.steps[-1] - found.steps[0])
    if meets is None or meets.fit < MIN_FIT or rising(half.values) > MIN_FALLING:
        return None
    return meets if found.steps[-1] < meets.step <= found.steps[-1] + span else None


def _evidence(
    found: Curve, shown: tuple[float, float], since: int | None, coming: Arrival | None
) -> tuple[Evidence, ...]:
    evidence = [
        Evidence("entropy at the start", shown[0], "nats", source(found)),
        Evidence("entropy, last tenth of the run", shown[1], "nats", source(found)),
    ]
    if since is not None:
        evidence.append(step_evidence("below a tenth of its start from step", since, found))
    if coming is not None:
        evidence.append(step_evidence(f"{coming.law} fall meets it at step", coming.step, found))
        evidence.append(Evidence("variance that this law explains", coming.fit, "", source(found)))
    return tuple(evidence)
