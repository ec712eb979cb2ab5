"""The engine's share is smaller than the weights.

The engine's share of the card must hold its weights, its working memory and a cache. Where the
weights alone do not fit, vLLM ends with `No available memory for the cache blocks`.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import EVERY_COMMAND, Flaw, View, divisors

DOMAIN = EVERY_COMMAND
_BYTES = 2  # of a weight in bfloat16
_LEAST_BESIDE = 1.15  # working memory, graphs and a cache for a few sequences


def check(view: View) -> Flaw | None:
    """Weights per GPU against the engine's share."""
    share, card = view.value("vllm.gpu_memory_utilization"), view.host.card_bytes
    if view.model is None or not share or not card or not (view.colocated or _serves(view)):
        return None
    options = str(view.launch.options)
    if "quant" in options or "fp8" in options or "kv_cache_memory_bytes" in options:
        return None
    divided = view.degree("vllm.tensor_parallel_size", "vllm.pipeline_parallel_size")
    weights = view.model.parameters * _BYTES / divided
    if weights * _LEAST_BESIDE <= share * card:
        return None
    needed = weights * _LEAST_BESIDE / card
    tensor = [n for n in divisors(view.model.heads, 8) if n > divided]
    fixes = [view.flags("vllm.tensor_parallel_size", tensor)] if tensor else []
    if needed <= 0.95:
        fixes.insert(0, view.flag("vllm.gpu_memory_utilization", round(needed + 0.05, 2)))
    ends = weights > share * card
    holds = "does not hold its weights" if ends else "leaves little in addition to its weights"
    return Flaw(
        severity="high" if ends else "medium",
        ends=ends,
        headline=f"vLLM's share of {share * card / 2**30:.0f} GiB {holds}",
        evidence=(f"{weights / 2**30:.1f} GiB of weights per GPU, and a cache in addition",),
        fixes=tuple(fixes),
        source=view.source("vllm.gpu_memory_utilization", "vllm.tensor_parallel_size"),
    )


def _serves(view: View) -> bool:
    return view.launch.role == "rollout server"
