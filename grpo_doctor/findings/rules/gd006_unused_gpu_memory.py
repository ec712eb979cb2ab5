"""GPU memory is left unused.

## What it means

At no moment of the run did even the fullest GPU come near its size.

## Why it costs

Memory is what GRPO buys speed with: a larger cache lets vLLM keep more completions in flight, a
larger micro-batch makes fewer and larger kernels, and activations that are kept need not be
computed twice.

## Evidence shown

The peak of the fullest GPU, the GPU's size, and what was never used.

## Fix

In this order: offload off, if it is on; a larger share for vLLM, up to what was free less a tenth
of the GPU; micro-batches twice as large and half as many, if half of the memory is free. No gain is
predicted: the run does not say how its kernels scale.

## When it is wrong

Peaks shorter than the sampling interval are not seen. Prompts or completions longer than any in
this run need more. A model that is small for its GPU can't fill it.

## References

- https://docs.vllm.ai/en/latest/configuration/conserving_memory.html
- https://huggingface.co/docs/transformers/perf_train_gpu_one
"""

from __future__ import annotations

import math
from dataclasses import replace

from grpo_doctor.findings import signals
from grpo_doctor.findings.device_memory import GIB, OFFLOAD_ROOM, USABLE, room_without_offload
from grpo_doctor.findings.memory_fixes import offload_off, switched_on
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, Passed, Rule
from grpo_doctor.findings.severity import Severity
from grpo_doctor.findings.view import RunView
from grpo_doctor.findings.wording import percent
from grpo_doctor.whatif import Edit, Withheld, without

RULE = Rule(
    id="GD006",
    slug="unused-gpu-memory",
    title="GPU memory is left unused",
    family="rollout",
    needs=(signals.STEPS, signals.PHASES, signals.GPU_MEMORY),
    uses=(*OFFLOAD_ROOM,),
)
# A tenth is kept free on purpose, and sampled peaks are a little low.
MIN_FREE_SHARE = 0.25
# With half of the memory free, even doubling all that is used would fit.
DOUBLING_NEEDS = 0.50
# A model that uses less than a tenth of its GPU is there for a test.
TINY_PEAK_SHARE = 0.10
_VLLM = "vllm.gpu_memory_utilization"
_UNKNOWN = Withheld("this run does not say how its kernels scale with their batch")


def check(view: RunView) -> Answer:
    """Looks at the fullest GPU's peak."""
    fullest = max(view.gpu_memory, key=lambda m: m.peak_bytes / m.gpu.memory_total_bytes)
    total = fullest.gpu.memory_total_bytes
    free = fullest.free_bytes / total
    if free < MIN_FREE_SHARE:
        return Passed(f"the fullest GPU reaches {percent(1 - free)} of its memory")
    source = f"gpu.memory_used of GPU {fullest.gpu.index} on {fullest.gpu.host}"
    return Finding(
        severity=_severity(free),
        confidence=0.7,
        cost=0.0,
        evidence=(
            Evidence("peak of the fullest GPU", round(fullest.peak_bytes / GIB, 2), "GiB", source),
            Evidence("its size", round(total / GIB, 2), "GiB", fullest.gpu.name),
            Evidence("never used", round(100 * free, 1), "%", source),
        ),
        cause=f"The fullest of {len(view.gpu_memory)} GPUs never holds more than "
        f"{fullest.peak_bytes / GIB:.1f} of {total / GIB:.1f} GiB.",
        fixes=_fixes(view, free),
    )


def counterfactual(view: RunView) -> tuple[Edit, ...]:
    """The part that can be replayed: no offload."""
    return (without("offload"),) if view.share("offload") else ()


def _severity(free: float) -> Severity:
    if free > 1 - TINY_PEAK_SHARE:
        return "info"
    return "medium" if free >= DOUBLING_NEEDS else "low"


def _fixes(view: RunView, free: float) -> tuple[Fix, ...]:
    fixes = [*_offload_off(view), *_more_for_vllm(view, free), *_larger_batch(view, free)]
    if fixes:
        return tuple(fixes)
    text = "train on more completions at once, or on fewer GPUs"
    return (view.advice(text, _UNKNOWN, safety="changes-algorithm"),)


def _offload_off(view: RunView) -> list[Fix]:
    room = room_without_offload(view)
    if not switched_on(view) or not room.fits:
        return []
    return [offload_off(view, room)]


def _more_for_vllm(view: RunView, free: float) -> list[Fix]:
    now = view.knob(_VLLM)
    if view.knob("vllm.use") is not True or view.knob("vllm.mode") == "server" or now is None:
        return []
    target = math.floor(20 * min(USABLE, now + free - (1 - USABLE))) / 20
    if target <= now:
        return []
    risk = "vLLM fails at start if this share is not free then; step back by 0.05."
    return [view.setting(_VLLM, target, _UNKNOWN, safety="same-math", risk=risk)]


def _larger_batch(view: RunView, free: float) -> list[Fix]:
    micro, passes = view.knob("train.micro_batch"), view.knob("train.grad_accumulation")
    if free < DOUBLING_NEEDS or not micro or not passes or passes % 2:
        return []
    risk = (
        "Instead of a larger rollout engine, not beside it: each is sized for all of the free "
        "memory. The same completions per optimizer step; longer ones than in this run need more."
    )
    fix = view.setting(
        "train.micro_batch", 2 * micro, _UNKNOWN, safety="changes-numerics", risk=risk
    )
    halved = view.setting(
        "train.grad_accumulation", passes // 2, _UNKNOWN, safety="changes-numerics", risk=risk
    )
    spelling = f"{fix.spelling} {halved.spelling}"
    return [replace(fix, spelling=spelling, predicted=None)]
