"""ZeRO-3 fetches the parameters from the host in every micro-step.

## What it means

ZeRO-3 keeps this job's parameters in host memory (`offload_param`), so each forward and each
backward pass of each micro-step copies them to the GPU again.

## Why it costs

A rank's share of the weights crosses the link to the host at least twice per micro-step, and three
times with recomputed activations, frozen weights under LoRA included. With gradient accumulation
that is multiplied. The link moves 20 to 50 GB/s, GPU memory a hundred times that.

## Evidence shown

The time in `train` and `logprob`, the micro-batches per optimizer step, how often the weights cross
the link in a step, and, where a GPU was sampled, the traffic to it during training.

## Fix

The DeepSpeed preset without parameter offload: `zero3` where GPU memory has room, else
`zero2_offload`, which leaves the optimizer on the host but the weights on the GPU.

## When it is wrong

A model whose share does not fit next to its activations needs the offload; then a larger micro-
batch with fewer accumulation steps makes fewer passes. On a machine without a GPU the "link" is a
copy within host memory, and the finding is only about the setting.

## References

- https://www.deepspeed.ai/docs/config-json/#parameter-offloading
- https://www.deepspeed.ai/2021/03/07/zero3-offload.html
"""

from __future__ import annotations

from grpo_doctor.findings import signals
from grpo_doctor.findings.knob_access import integer
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, NotApplicable, Passed, scaled
from grpo_doctor.findings.severity import Severity, percent, severity_of
from grpo_doctor.findings.span_counts import gpu_means
from grpo_doctor.findings.view import RunView, timed_rule
from grpo_doctor.whatif import Settings

RULE = timed_rule(__name__, __doc__, "offload", signals.SETTINGS, uses=("gpu.pcie_rx",))
# What the passes take when they are all of the cost's possible room: below a tenth of the step even
# halving them is lost in the spread of generation lengths.
MIN_SHARE = 0.10
# A PCIe 4 x16 link moves 22-26 GB/s in practice; a third of that over a whole phase, sampled in
# windows of 20 ms, is a link that the phase keeps coming back to.
BUSY_LINK_BYTES_PER_S = 8e9
LINK_BYTES_PER_S = 25e9
_PRESET = "deepspeed.preset"
_PARAMETERS = "deepspeed.offload_param"
_PASSES = ("train", "logprob")
_ACCUMULATION = "train.grad_accumulation"
_FETCHES = "transfers of all weights from the host, per step"


def check(view: RunView) -> Answer:
    """Look at the setting, then at what the passes over the model take."""
    if view.knob("deepspeed.offload_param") is not True:
        return NotApplicable("no parameters are kept on the host")
    share = sum(view.share(phase) for phase in _PASSES)
    if share < MIN_SHARE:
        return Passed(f"the passes over the model take {percent(share, 1)} of the step")
    # Mean bytes per second to the GPUs while their ranks are in a pass; None if not sampled.
    means = [mean for mean, _ in gpu_means(view, "gpu.pcie_rx", *_PASSES)]
    traffic = max(means, default=None)
    seconds = sum(view.seconds(phase) for phase in _PASSES)
    fetched = _fetches(view)
    # Seconds in which the link was busy at its full speed; unknown traffic claims no cost.
    cost = 0.0 if traffic is None else share * min(1.0, traffic / LINK_BYTES_PER_S)
    unmeasured: Severity = "medium" if view.has_gpu else "low"
    often = "for each pass" if fetched is None else f"{fetched} times per step"
    text, source = "to the GPU during the passes", "gpu.pcie_rx during train and logprob"
    return Finding(
        severity=unmeasured if traffic is None else severity_of(cost),
        confidence=0.9 if traffic and traffic >= BUSY_LINK_BYTES_PER_S else 0.6,
        cost=cost,
        phases=tuple(phase for phase in _PASSES if view.share(phase)),
        evidence=(
            *view.phase_evidence("train"),
            Evidence(_FETCHES, fetched, "", "settings"),
            Evidence(text, scaled(traffic, 1e-9, 2), "GB/s", source),
        ),
        cause=f"The parameters are in host memory and are fetched {often}; the "
        f"passes over the model take {seconds:.3g} s of {view.step_s:.3g} s.",
        fixes=(_fix(view),),
    )


def _fetches(view: RunView) -> int | None:
    """Per micro-step: forward, backward, and the recomputed forward; per step, all micro-steps."""
    recomputed = view.fact("train.gradient_checkpointing")
    steps = integer(view.fact(_ACCUMULATION))
    if recomputed is None or steps is None:
        return None
    return (3 if recomputed else 2) * max(1, steps)


def _fix(view: RunView) -> Fix:
    change = Settings(((_PARAMETERS, False),))
    risk = (
        "Needs each rank's share of the weights in GPU memory (2 bytes per parameter, divided by "
        "the ranks); if that does not fit, try zero2_offload with fewer completions at once."
    )
    if str(view.now(_PRESET)) == "zero3_offload":
        return view.setting(_PRESET, "zero3", change, safety="same-math", risk=risk)
    if view.spell(_PARAMETERS, False) is not None:
        return view.setting(_PARAMETERS, False, change, safety="same-math", risk=risk)
    text = 'remove "offload_param" from zero_optimization in the DeepSpeed configuration'
    return view.advice(text, change, safety="same-math", risk=risk)
