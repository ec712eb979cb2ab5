"""A group of one completion.

The advantage of a completion is its reward against the others of its prompt. With one completion
per prompt there are no others: every advantage is 0 and nothing is learned. verl's and OpenRLHF's
default is one.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import TRAINS, Flaw, View

DOMAIN = TRAINS


def check(view: View) -> Flaw | None:
    """The number of generations, where the algorithm needs a group."""
    group = view.integer("rollout.num_generations")
    if group is None or group > 1:
        return None
    if any(key.startswith("teacher_model") for key in view.launch.options):
        return None  # distillation learns from the teacher, not from a group
    if view.launch.algorithm not in ("grpo", "rloo", "group_norm", "dr_grpo"):
        return None
    if view.launch.framework == "openrlhf" and view.launch.algorithm == "grpo":
        return None  # nobody said group_norm
    return Flaw(
        severity="high",
        headline="one completion per prompt: every advantage is 0",
        evidence=(f"{view.launch.algorithm} with {group} generation",),
        fixes=(view.flag("rollout.num_generations", 8),),
        source=view.source("rollout.num_generations"),
        ends=view.launch.framework in ("trl", "ms-swift", "openrlhf"),
    )
