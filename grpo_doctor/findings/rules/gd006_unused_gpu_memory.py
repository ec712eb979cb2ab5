"""GPU memory is left unused."""

from __future__ import annotations

from grpo_doctor.findings import device_memory, signals
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, Passed
from grpo_doctor.findings.shared import percent
from grpo_doctor.findings.view import RunView, timed_rule
from grpo_doctor.whatif.room import GIB

RULE = timed_rule("rollout", signals.GPU_MEMORY, uses=device_memory.OFFLOAD_ROOM)
# A tenth is kept free on purpose, and sampled peaks are a little low.
MIN_FREE_SHARE = 0.25
# With half of the memory free, even doubling all that is used would fit.
DOUBLING_NEEDS = 0.50
# A model that uses less than a tenth of its GPU is there for a test.
TINY_PEAK_SHARE = 0.10
_UNKNOWN = "how this run's kernels scale with their batch was not measured"


def check(view: RunView) -> Answer:
    """Look at the most-used GPU's peak."""
    memory = device_memory.most_used(view)
    assert memory is not None  # the rule needs it
    total = memory.gpu.memory_total_bytes
    free = memory.free_bytes / total
    if free < MIN_FREE_SHARE:
        return Passed(f"the most-used GPU reaches {percent(1 - free)} of its memory")
    source = f"gpu.memory_used of GPU {memory.gpu.index} on {memory.gpu.host}"
    return Finding(
        severity="info"
        if free > 1 - TINY_PEAK_SHARE
        else "medium"
        if free >= DOUBLING_NEEDS
        else "low",
        confidence=0.7,
        evidence=(
            Evidence("peak of the most-used GPU", round(memory.peak_bytes / GIB, 2), "GiB", source),
            Evidence("its size", round(total / GIB, 2), "GiB", memory.gpu.name),
            Evidence("never used", round(100 * free, 1), "%", source),
        ),
        cause=f"The most-used of {len(view.gpu_memory)} GPUs never holds more than "
        f"{memory.peak_bytes / GIB:.1f} of {total / GIB:.1f} GiB.",
        fixes=_fixes(view, free),
    )


def _fixes(view: RunView, free: float) -> tuple[Fix, ...]:
    fixes = [
        *device_memory.offload_off_if_it_fits(view),
        *_more_for_vllm(view, free),
        *_larger_batch(view, free),
    ]
    if fixes:
        return tuple(fixes)
    text = "train on more completions at once, or on fewer GPUs"
    return (view.advice(text, _UNKNOWN, safety="changes-algorithm"),)


def _more_for_vllm(view: RunView, free: float) -> list[Fix]:
    target = device_memory.larger_share(view, free)
    if view.now("vllm.use") is not True or view.now("vllm.mode") == "server" or target is None:
        return []
    return [view.setting(device_memory.VLLM_SHARE, target, _UNKNOWN, risk=device_memory.SHARE_RISK)]


def _larger_batch(view: RunView, free: float) -> list[Fix]:
    micro, passes = view.now(device_memory.MICRO_BATCH), view.now(device_memory.PASSES)
    if free < DOUBLING_NEEDS or not micro or not passes or passes % 2:
        return []
    risk = (
        "An alternative to a larger rollout engine: each is sized for all free memory. Keeps the "
        "completions per optimizer step; longer ones than in this run need more."
    )
    return [device_memory.in_passes_of(view, 2 * micro, passes // 2, _UNKNOWN, risk=risk)]
