"""Parameters can be offloaded with ZeRO-3 alone.

DeepSpeed's offload_param moves parameters that ZeRO-3 has divided. With stage 1 or 2 DeepSpeed
takes the section and does nothing with it: the whole model stays on each card.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import SAMPLES, Flaw, View

DOMAIN = SAMPLES


def check(view: View) -> Flaw | None:
    """offload_param with a stage below 3."""
    stage = view.value("deepspeed.stage")
    if not view.value("deepspeed.offload_param") or stage is None or stage == 3:
        return None
    return Flaw(
        severity="medium",
        headline=f"offload_param does nothing with ZeRO-{stage}",
        evidence=("only ZeRO-3 divides parameters, and can move them",),
        fixes=('"stage": 3 in the DeepSpeed configuration', "or leave out offload_param"),
        source=view.source("deepspeed.offload_param", "deepspeed.stage"),
    )
