"""verl has no synchronous rollout any more.

Since 0.7 rollouts are asynchronous servers; mode=sync ends the launch.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import VERL, Flaw, View, fatal_flaw

DOMAIN = VERL
_KEY = "actor_rollout_ref.rollout.mode"


def check(view: View) -> Flaw | None:
    """rollout.mode=sync."""
    if not view.at_least("0.7.0"):
        return None
    if view.launch.options.get(_KEY) != "sync":
        return None
    return fatal_flaw(
        headline="verl has no rollout.mode=sync since 0.7",
        evidence=("rollouts are asynchronous servers",),
        fixes=(f"leave out {_KEY}=sync",),
        source=view.launch.option_sources.get(_KEY),
    )
