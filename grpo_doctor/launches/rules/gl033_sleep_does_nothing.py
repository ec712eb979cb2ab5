"""Sleep that does nothing.

The engine sleeps to make room for a trainer on the same GPU. ms-swift sets sleep_level to 0 with
a server and with asynchronous rollouts; TRL's vllm_enable_sleep_mode acts in colocate mode alone.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import SWIFT_AND_TRL, Flaw, View

DOMAIN = SWIFT_AND_TRL


def check(view: View) -> Flaw | None:
    """Sleep asked for where the engine is elsewhere."""
    if not view.launch.settings.get("vllm.sleep_level"):
        return None
    if view.colocated and not view.value("rollout.async"):
        return None
    return Flaw(
        severity="low",
        headline="vLLM's sleep does nothing here",
        evidence=("the engine does not share the trainer's GPU, or never pauses",),
        fixes=(f"leave out {view.flag('vllm.sleep_level', view.value('vllm.sleep_level'))}",),
        source=view.source("vllm.sleep_level"),
    )
