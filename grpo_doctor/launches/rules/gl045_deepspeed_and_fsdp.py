"""DeepSpeed and FSDP at once.

Both divide the model over the ranks, in different ways. accelerate takes one of them and
transformers refuses the pair.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import PLAIN_SWIFT_AND_TRL, Flaw, View, fatal_flaw

DOMAIN = PLAIN_SWIFT_AND_TRL


def check(view: View) -> Flaw | None:
    """A stage of ZeRO beside FSDP."""
    strategy = str(view.value("parallel.strategy") or "")
    if not strategy:
        return None
    stage = view.value("deepspeed.stage")
    if stage is None and not view.sets("deepspeed.preset"):
        return None
    deepspeed = view.value("deepspeed.preset") if stage is None else f"ZeRO-{stage}"
    return fatal_flaw(
        headline="DeepSpeed and FSDP are both on",
        evidence=(f"{strategy}, and {deepspeed}",),
        fixes=("leave out --deepspeed", "or leave out --fsdp"),
        source=view.source("parallel.strategy", "deepspeed.preset"),
    )
