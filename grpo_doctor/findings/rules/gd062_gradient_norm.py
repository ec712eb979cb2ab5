"""The gradient norm is NaN, spikes or grows.

## What it means

At some steps the norm of the gradient is NaN or infinite, or many times its usual size; or it has
grown tenfold over the run.

## Why it costs

A NaN gradient ruins the weights or, where the framework notices, loses the step. Without clipping a
spike throws the policy far from where it was; with clipping one bad batch replaces the direction of
many good ones in the optimizer's memory.

## Evidence shown

The usual norm (median), its largest value, the steps that are spikes or no number, and the medians
of the first and the last tenth of the run.

## Fix

NaN: look at that step's batch and log-probs; bfloat16 or float32 in place of float16. Spikes and
growth: clipping at 1, a lower learning rate.

## When it is wrong

In float16 with a loss scale, single infinite norms are how the scale is found, and the step is
skipped by design. Norms near zero at steps without any advantage make ordinary steps look large, so
that the usual size is taken over the steps with a gradient.

## References

- https://arxiv.org/abs/1211.5063 (gradient clipping)
- https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling
"""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis.learning import Curve
from grpo_doctor.analysis.learning.curves import Mask, Numbers
from grpo_doctor.analysis.learning.shape import MAD_TO_SD, ends, rising
from grpo_doctor.findings.learning import MOST_STEPS, metric_even_nan, source
from grpo_doctor.findings.learning_fixes import clip_gradients, learning_advice, slower
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, Passed, Rule
from grpo_doctor.findings.severity import Severity
from grpo_doctor.findings.view import RunView, identity, no_counterfactual

RULE = Rule(*identity(__name__, __doc__), family="learning", needs=(metric_even_nan("grad_norm"),))
POINTS = 20
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
# One lost step in a thousand may be a loss scale being found.
MAX_BAD_SHARE = 0.01
counterfactual = no_counterfactual  # it changes what is learned


def check(view: RunView) -> Answer:
    """No number first, then growth, then spikes."""
    every = view.metric("grad_norm")
    assert every is not None
    norms = every.finite.where(every.finite.values > NO_GRADIENT)
    lost = every.where(every.bad)
    if len(lost):
        share = len(lost) / len(every)
        headline = f"The gradient norm is no number at {len(lost)} of {len(every)} steps"
        return _finding(view, every, lost, headline, "high" if share > MAX_BAD_SHARE else "medium")
    if len(norms) < POINTS:
        return Passed(f"a number at all {len(every)} steps; too few to look for spikes")
    first, last = ends(norms)
    if last >= GROWTH * first and rising(norms.values) >= MIN_RISING:
        return _finding(
            view, every, None, f"The gradient norm grew {last / first:.0f}-fold", "medium"
        )
    spikes = norms.where(spiking(norms.values))
    clipped = clip_gradients(view) == ()
    if clipped and len(spikes) <= MAX_CLIPPED_SPIKES:
        return Passed(
            f"median {np.median(norms.values):.3g}, largest {norms.values.max():.3g}, and "
            "gradients are clipped"
        )
    if len(spikes):
        headline = f"The gradient norm spikes at {len(spikes)} of {len(every)} steps"
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
    finite = every.finite
    evidence = [Evidence("steps", len(every), "", source(every))]
    if len(finite):
        first, last = ends(finite)
        evidence += [
            Evidence("usual norm", float(np.median(finite.values)), "", source(finite)),
            Evidence("largest norm", float(finite.values.max()), "", source(finite)),
            Evidence("first tenth of the run", first, "", source(finite)),
            Evidence("last tenth of the run", last, "", source(finite)),
        ]
    steps = () if at is None else tuple(at.steps[:MOST_STEPS].tolist())
    if steps:
        evidence.append(Evidence("first at step", steps[0], "", source(every)))
    return Finding(
        severity=severity,
        confidence=0.9,
        phases=("train", "optimizer"),
        evidence=tuple(evidence),
        cause=headline + (f", first at step {steps[0]}." if steps else "."),
        fixes=_fixes(view, lost=at is not None and bool(at.bad.any())),
        headline=headline,
        steps=steps,
    )


def _fixes(view: RunView, *, lost: bool) -> tuple[Fix, ...]:
    if lost:
        text = "bfloat16 or float32 in place of float16; look at the rewards and log-probs there"
        return (learning_advice(view, text, safety="changes-numerics"), *clip_gradients(view))
    return (*clip_gradients(view), *slower(view))
