"""The whole model is sent to the engine though only adapters were trained.

## What it means

Training is LoRA, and before each rollout adapters are merged and all weights are sent to vLLM.

## Why it costs

The weights are some hundred times the adapters. Each of them is gathered, merged, copied and
loaded, at every rollout, although only the adapters changed.

## Evidence shown

The time in `sync` per step, and the parts of it for gathering, loading and sending the weights.

## Fix

`vllm.enable_lora`: vLLM loads the base weights once and gets only the adapters. `vllm.sleep_level`
2 would drop the base weights, so set it to 1.

## When it is wrong

vLLM's adapter kernels slow decoding by some percent to a third, mostly with small batches, so a
sync of a few percent is not worth changing. vLLM has no adapters for some layers (vision towers,
embeddings, some experts).

## References

- https://docs.vllm.ai/en/latest/features/lora/
- https://swift.readthedocs.io/en/latest/Instruction/GRPO/GetStarted/GRPO.html
"""

from __future__ import annotations

from grpo_doctor.findings import signals
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, NotApplicable, Passed
from grpo_doctor.findings.severity import percent, severity_of
from grpo_doctor.findings.view import RunView, timed_rule
from grpo_doctor.whatif import Settings

RULE = timed_rule(__name__, __doc__, "sync", signals.SETTINGS)
# Adapter kernels slow decoding by a tenth and more: a sync below a twentieth of the step would be
# changed for a loss.
MIN_SHARE = 0.05
_KNOB, _SLEEP = "vllm.enable_lora", "vllm.sleep_level"


def check(view: RunView) -> Answer:
    """Look at the settings, then at what the sync takes."""
    if view.knob("train.type") != "lora" or view.now("vllm.use") is False:
        return NotApplicable("no adapters are trained for a separate rollout engine")
    if view.now(_KNOB) is True:
        return NotApplicable("only adapters are sent")
    share = view.share("sync")
    if share < MIN_SHARE:
        return Passed(f"sending the weights takes {percent(share, 1)} of the step")
    return Finding(
        severity=severity_of(share),
        confidence=0.8,
        cost=share,
        phases=("sync",),
        evidence=(
            *view.phase_evidence("sync"),
            Evidence("what is trained", "lora", "", "settings"),
            *_parts(view),
        ),
        cause=f"Each step spends {view.seconds('sync'):.3g} s of {view.step_s:.3g} s on sending "
        f"merged weights although only the adapters changed.",
        fixes=(_fix(view),),
    )


def _parts(view: RunView) -> tuple[Evidence, ...]:
    parts = {name: view.span_seconds(f"sync/{name}") for name in ("gather", "load", "send")}
    return tuple(
        Evidence(f"of it {name}, per step", seconds, "s", f"sync/{name} spans")
        for name, seconds in parts.items()
        if seconds
    )


def _fix(view: RunView) -> Fix:
    change = Settings(((_KNOB, True),))
    risk = "Decoding with adapters is up to a third slower: compare the whole step."
    if view.now("vllm.mode") == "server":
        text = "start the server with adapters enabled and send it only the adapters"
        return view.advice(text, change, safety="same-math", risk=risk)
    light = [(_SLEEP, 1)] if view.now(_SLEEP) == 2 and view.spell(_SLEEP, 1) else []
    return view.settings([(_KNOB, True), *light], change, safety="same-math", risk=risk)
