"""verl has no rollout engine.

Since 0.6 actor_rollout_ref.rollout.name has no default: verl ends with `Missing mandatory value`.
"""

from __future__ import annotations

from dataclasses import replace

from grpo_doctor.launches.rule import VERL, Flaw, View, fatal_flaw

DOMAIN = replace(VERL, whole=True)
_KEY = "actor_rollout_ref.rollout.name"


def check(view: View) -> Flaw | None:
    """rollout.name since 0.6."""
    if not view.at_least("0.6.0"):
        return None
    if not view.launch.subcommand.endswith("main_ppo") or _KEY in view.launch.options:
        return None
    return fatal_flaw(
        headline="actor_rollout_ref.rollout.name is not set",
        evidence=("since verl 0.6 it has no default",),
        fixes=(f"{_KEY}=vllm", f"or {_KEY}=sglang"),
    )
