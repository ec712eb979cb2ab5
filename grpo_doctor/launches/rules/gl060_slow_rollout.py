"""Generation uses transformers.

Without vLLM completions come from transformers' generate, token by token in Python; with ZeRO-3
each token would gather the whole model again if ds3_gather_for_generation were off.
"""

from __future__ import annotations

from dataclasses import replace

from grpo_doctor.launches.rule import PLAIN_SWIFT_AND_TRL, Flaw, View

DOMAIN = replace(PLAIN_SWIFT_AND_TRL, whole=True)


def check(view: View) -> Flaw | None:
    """No engine; worse with ZeRO-3 that does not gather once."""
    if view.value("vllm.use"):
        return None
    if not view.launch.options:
        return None
    if any(view.sets(knob) for knob in ("vllm.mode", "vllm.gpu_memory_utilization")):
        return None
    gathers = view.value("sync.gather_for_generation", True)
    if view.value("deepspeed.stage") == 3 and not gathers:
        return Flaw(
            severity="medium",
            headline="ZeRO-3 gathers the model for every token",
            evidence=(
                "ds3_gather_for_generation is off; ranks of unequal lengths wait for each other",
            ),
            fixes=(view.flag("sync.gather_for_generation", True), view.flag("vllm.use", True)),
            source=view.source("sync.gather_for_generation"),
        )
    return Flaw(
        severity="info",
        headline="generation uses transformers; vLLM is many times faster",
        evidence=("use_vllm is off",),
        fixes=(view.flag("vllm.use", True),),
        source=view.source("vllm.use"),
    )
