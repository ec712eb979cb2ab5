"""The gradient norm spikes or grows."""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis.learning import Curve
from grpo_doctor.analysis.learning.curves import Mask, Numbers
from grpo_doctor.analysis.learning.shape import MAD_TO_SD, ends, rising
from grpo_doctor.findings import learning
from grpo_doctor.findings.rule import Answer, Evidence, Finding, NotApplicable, Passed
from grpo_doctor.findings.shared import Severity
from grpo_doctor.findings.view import RunView, rule

POINTS = 20
RULE = rule("learning", learning.metric("grad_norm", POINTS))
# What is left of a gradient whose advantages are all zero: rounding, 1e-17 to 1e-9 in float32.
NO_GRADIENT = 1e-6
# Norms are log-normal and heavy-tailed, so the logarithm is judged: eight of its deviations and ten
# times the median together leave healthy runs alone, whose norms vary by a factor of two or three.
SPIKE_RATIO = 10.0
SPIKE_DEVIATIONS = 8.0
MIN_LOG_DEVIATION = 0.10
# Clipping scales a spike down to the size of any other update: one batch of a run may be odd.
MAX_CLIPPED_SPIKES = 1
GROWTH = 10.0
MIN_RISING = 0.60


def check(view: RunView) -> Answer:
    """Growth first, then spikes."""
    every = learning.finite(view, "grad_norm")
    norms = every.where(every.values > NO_GRADIENT)
    if len(norms) < POINTS:
        return NotApplicable(
            f"{len(norms)} of {len(every)} {learning.steps_of(every)} have a gradient: "
            "too few to look for spikes"
        )
    first, last = ends(norms)
    if last >= GROWTH * first and rising(norms.values) >= MIN_RISING:
        return _finding(
            view, every, None, f"The gradient norm grew {last / first:.0f}-fold", "medium"
        )
    spikes = norms.where(spiking(norms.values))
    clipped = learning.clip_gradients(view) == ()
    if clipped and len(spikes) <= MAX_CLIPPED_SPIKES:
        return Passed(
            f"median {np.median(norms.values):.3g}, largest {norms.values.max():.3g}, and "
            "gradients are clipped"
        )
    if len(spikes):
        at = f"{len(spikes)} of {len(every)} {learning.steps_of(every)}"
        headline = f"The gradient norm spikes at {at}"
        return _finding(view, every, spikes, headline, "low" if clipped else "medium")
    return Passed(f"median {np.median(norms.values):.3g}, largest {norms.values.max():.3g}")


def spiking(values: Numbers) -> Mask:
    """Which norms, shape (n,) and above zero, are far outside of what is usual in this run."""
    logs = np.log(values)
    usual = np.median(logs)
    deviation = max(MIN_LOG_DEVIATION, MAD_TO_SD * float(np.median(np.abs(logs - usual))))
    threshold = max(float(np.log(SPIKE_RATIO)), SPIKE_DEVIATIONS * deviation)
    spikes: Mask = logs - usual > threshold
    return spikes


def _finding(
    view: RunView, every: Curve, at: Curve | None, headline: str, severity: Severity
) -> Finding:
    evidence = [
        *learning.over_run("gradient norm", every),
        Evidence("steps", len(every), "", learning.source(every)),
        Evidence("usual norm", float(np.median(every.values)), "", learning.source(every)),
        Evidence("largest norm", float(every.values.max()), "", learning.source(every)),
    ]
    steps = () if at is None else tuple(at.steps[: learning.MOST_STEPS].tolist())
    if steps:
        evidence.append(Evidence("first at step", steps[0], "", learning.source(every)))
    return Finding(
        severity=severity,
        confidence=0.9,
        phases=("train", "optimizer"),
        evidence=tuple(evidence),
        cause=headline + (f", first at step {steps[0]}." if steps else "."),
        fixes=(*learning.clip_gradients(view), *learning.slower(view)),
        headline=headline,
        steps=steps,
    )
