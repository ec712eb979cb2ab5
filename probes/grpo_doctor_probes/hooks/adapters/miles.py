"""miles: slime's actors and timer in a package of another name."""

from __future__ import annotations

from grpo_doctor_probes.hooks.adapters.slime import of_package

ADAPTER = of_package(
    "miles", "miles.ray.rollout.rollout_manager", "miles.utils.tracking_utils.tracking"
)
