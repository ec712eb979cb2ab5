"""vLLM cannot divide the attention heads.

vLLM gives each GPU of a replica the same number of attention heads, and refuses a tensor
parallelism that does not divide them. Qwen2.5-7B has 28 heads: 1, 2, 4, 7 go, 8 does not.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import EVERY_COMMAND, Flaw, View, divisors, fatal_flaw

DOMAIN = EVERY_COMMAND


def check(view: View) -> Flaw | None:
    """Heads over the engine's tensor parallelism."""
    tensor = view.integer("vllm.tensor_parallel_size")
    if view.model is None or not tensor or view.model.heads % tensor == 0:
        return None
    return fatal_flaw(
        headline=f"{view.model.heads} attention heads are not divisible by {tensor} GPUs",
        evidence=(f"the model has {view.model.heads} attention heads",),
        fixes=(view.flags("vllm.tensor_parallel_size", divisors(view.model.heads, 8)),),
        source=view.source("vllm.tensor_parallel_size"),
    )
