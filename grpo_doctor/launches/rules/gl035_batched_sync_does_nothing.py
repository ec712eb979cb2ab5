"""Batched weight transfer without ZeRO-3.

move_model_batches gathers the weights for vLLM in groups of layers, so that ZeRO-3 does not
gather the whole model at once. Without ZeRO-3 every rank has the whole model anyway.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import PLAIN_SWIFT, Flaw, View

DOMAIN = PLAIN_SWIFT


def check(view: View) -> Flaw | None:
    """move_model_batches, and what would be gathered."""
    if not view.launch.settings.get("sync.move_model_batches"):
        return None
    if view.value("deepspeed.stage") == 3 or view.value("parallel.strategy"):
        return None
    if str(view.value("deepspeed.preset")).endswith(".json"):
        return None
    return Flaw(
        severity="info",
        headline="--move_model_batches saves memory with ZeRO-3 alone",
        evidence=(f"the ZeRO stage is {view.value('deepspeed.stage', 0)}",),
        fixes=("leave out --move_model_batches",),
        source=view.source("sync.move_model_batches"),
    )
