"""vLLM cannot take these adapters.

With vllm_enable_lora the trainer sends adapters instead of merged weights. vLLM reserves room for
adapters up to max_lora_rank and refuses larger ones; in full training there are none to send.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import Flaw, Rule
from grpo_doctor.launches.view import View

RULE = Rule(id="GL036", slug="adapters-in-the-engine", title="vLLM cannot take these adapters")


def check(view: View) -> Flaw | None:
    """enable_lora against what is trained and its rank."""
    if view.launch.role != "train" or not view.launch.settings.get("vllm.enable_lora"):
        return None
    if view.value("train.type") == "full":
        return Flaw(
            severity="high",
            headline="vLLM is to take adapters, and all weights are trained",
            evidence=("full training makes no adapters",),
            fixes=(f"leave out {view.flag('vllm.enable_lora', True)}",),
            source=view.source("vllm.enable_lora"),
            ends=True,
        )
    rank, most = view.whole("train.lora_rank"), view.whole("vllm.max_lora_rank")
    if not rank or not most or rank <= most:
        return None
    return Flaw(
        severity="high",
        headline=f"adapters of rank {rank}, and vLLM takes up to {most}",
        evidence=(f"max_lora_rank is {most}",),
        fixes=(view.flag("vllm.max_lora_rank", rank),),
        source=view.source("train.lora_rank", "vllm.max_lora_rank"),
        ends=True,
    )
