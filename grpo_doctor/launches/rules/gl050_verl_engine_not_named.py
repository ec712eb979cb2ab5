"""verl is not told what rolls out.

Since 0.6 actor_rollout_ref.rollout.name has no default: verl ends with `Missing mandatory value`.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import Flaw, Rule
from grpo_doctor.launches.view import View

RULE = Rule(id="GL050", slug="verl-engine-not-named", title="verl is not told what rolls out")


def check(view: View) -> Flaw | None:
    """rollout.name since 0.6."""
    if not view.is_framework("verl") or not view.at_least("0.6.0") or view.said("rollout.engine"):
        return None
    if not view.launch.subcommand.endswith("main_ppo") or not view.launch.options:
        return None
    return Flaw(
        severity="high",
        headline="actor_rollout_ref.rollout.name is not said",
        evidence=("since verl 0.6 it has no default",),
        fixes=("actor_rollout_ref.rollout.name=vllm", "or =sglang"),
        ends=True,
    )
