"""Sleep without shared GPUs does nothing.

OpenRLHF switches vLLM's and DeepSpeed's sleep off where engines and actors have GPUs of their
own: there is nobody to make room for. With asynchronous training vLLM's sleep is refused.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import OPENRLHF, Flaw, View, fatal_flaw

DOMAIN = OPENRLHF


def check(view: View) -> Flaw | None:
    """vLLM's sleep, where engines do not share, or rollouts overlap training."""
    if not view.launch.settings.get("vllm.sleep_level"):
        return None
    if view.value("rollout.async"):
        return fatal_flaw(
            headline="asynchronous rollouts and vLLM's sleep exclude each other",
            evidence=("the engine would sleep while it has to generate",),
            fixes=(view.flag("vllm.sleep_level", 0),),
            source=view.source("vllm.sleep_level"),
        )
    if view.colocated:
        return None
    return Flaw(
        severity="low",
        headline="vLLM's sleep does nothing: engines have GPUs of their own",
        evidence=("OpenRLHF turns it off without --colocate_all_models, --train.colocate_all",),
        fixes=(view.flag("vllm.mode", "colocate"), f"or {view.flag('vllm.sleep_level', 0)}"),
        source=view.source("vllm.sleep_level"),
    )
