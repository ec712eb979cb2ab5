"""verl computes advantages as in PPO.

algorithm.adv_estimator is gae by default: verl trains a critic in addition to the actor, as large
again, and the group of n completions is not compared. GRPO has to be asked for.
"""

from __future__ import annotations

from dataclasses import replace

from grpo_doctor.launches.rule import VERL, Flaw, View

DOMAIN = replace(VERL, whole=True)


def check(view: View) -> Flaw | None:
    """n above 1 with the default estimator."""
    if "algorithm.adv_estimator" in view.launch.options:
        return None
    if not view.launch.subcommand.endswith("main_ppo"):
        return None
    group = view.integer("rollout.num_generations")
    if not group or group < 2 or any(key.startswith("critic.") for key in view.launch.options):
        return None
    return Flaw(
        severity="high",
        headline="this is PPO with a critic, not GRPO",
        evidence=(
            f"{group} completions per prompt, and algorithm.adv_estimator is gae by default",
        ),
        fixes=("algorithm.adv_estimator=grpo",),
        source=view.source("rollout.num_generations"),
    )
