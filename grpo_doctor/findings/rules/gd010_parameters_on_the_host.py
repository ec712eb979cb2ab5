"""ZeRO-3 fetches the parameters from the host in every micro-step."""

from __future__ import annotations

from grpo_doctor.findings import signals
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, NotApplicable, Passed, scaled
from grpo_doctor.findings.shared import Severity, percent, severity_of
from grpo_doctor.findings.span_counts import gpu_means
from grpo_doctor.findings.view import RunView, integer, timed_rule
from grpo_doctor.whatif import Settings

RULE = timed_rule("offload", signals.SETTINGS, uses=("gpu.pcie_rx",))
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
        return view.setting(_PRESET, "zero3", change, risk=risk)
    if view.spell(_PARAMETERS, False) is not None:
        return view.setting(_PARAMETERS, False, change, risk=risk)
    text = 'remove "offload_param" from zero_optimization in the DeepSpeed configuration'
    return view.advice(text, change, risk=risk)
