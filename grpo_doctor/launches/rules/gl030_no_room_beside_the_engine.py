"""The engine leaves no room for the trainer.

An engine on the trainer's GPU that does not sleep keeps its share of the card all the time. What
is left must hold the trainer: with 0.9, the default, a tenth of the card.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import SAMPLED, Domain, Flaw, View

DOMAIN = Domain(("ms-swift", "trl", "openrlhf"), SAMPLED)
_MOST_WITHOUT_SLEEP = 0.8  # what is left of 80 GB holds a 7B with LoRA, and little else


def check(view: View) -> Flaw | None:
    """The engine's share, where it never sleeps."""
    share = view.value("vllm.gpu_memory_utilization")
    if not view.colocated or view.sleeps or not share:
        return None
    if share <= _MOST_WITHOUT_SLEEP:
        return None
    origin = "" if view.sets("vllm.gpu_memory_utilization") else ", this framework's default"
    return Flaw(
        severity="medium",
        headline=f"vLLM keeps {share:.0%} of each card, also while training",
        evidence=(f"gpu_memory_utilization {share:g}{origin}; the engine never sleeps",),
        fixes=(
            view.flag("vllm.gpu_memory_utilization", 0.4),
            f"or {view.flag('vllm.sleep_level', 1)}",
        ),
        source=view.source("vllm.gpu_memory_utilization"),
    )
