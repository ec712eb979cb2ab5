"""vLLM cannot take these adapters.

With vllm_enable_lora the trainer sends adapters instead of merged weights. vLLM reserves room for
adapters up to max_lora_rank and refuses larger ones; in full training there are none to send.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import TRAINS, Flaw, View, fatal_flaw

DOMAIN = TRAINS


def check(view: View) -> Flaw | None:
    """enable_lora against what is trained and its rank."""
    if not view.launch.settings.get("vllm.enable_lora"):
        return None
    if view.value("train.type") == "full":
        return fatal_flaw(
            headline="vLLM is set to take adapters, but all weights are trained",
            evidence=("full training makes no adapters",),
            fixes=(f"leave out {view.flag('vllm.enable_lora', True)}",),
            source=view.source("vllm.enable_lora"),
        )
    rank, limit = view.integer("train.lora_rank"), view.integer("vllm.max_lora_rank")
    if not rank or not limit or rank <= limit:
        return None
    return fatal_flaw(
        headline=f"adapters have rank {rank}, but vLLM takes at most {limit}",
        evidence=(f"max_lora_rank is {limit}",),
        fixes=(view.flag("vllm.max_lora_rank", rank),),
        source=view.source("train.lora_rank", "vllm.max_lora_rank"),
    )
