"""The rollout is no whole number of groups.

GRPO compares the completions of one prompt with each other, so a rollout must hold whole groups.
It holds per-device batch x processes x steps per generation completions; the framework refuses to
start where the number of generations does not divide that. Before TRL 0.17 and ms-swift 3.3
gradient accumulation did not count.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import PLAIN_LIKE_TRL, Flaw, View, divisors, fatal_flaw

DOMAIN = PLAIN_LIKE_TRL
_COUNTED_SINCE = {"trl": "0.17.0", "ms-swift": "3.3.0", "bundled": "0.1.0"}


def check(view: View) -> Flaw | None:
    """The completions of a rollout, divided by the size of a group."""
    group, micro, ranks = (
        view.integer("rollout.num_generations"),
        view.integer("train.micro_batch"),
        view.processes,
    )
    if not group or not micro or not ranks:
        return None
    if view.launch.framework == "bundled" and view.launch.model is None:
        return None  # its own small model comes with other defaults
    ranks = max(1, ranks // view.degree("parallel.context"))
    steps = view.steps_per_generation
    if not view.at_least(_COUNTED_SINCE[view.launch.framework]):
        steps = 1
    total = view.integer("rollout.completions") or micro * ranks * steps
    if total % group == 0 and (total >= group):
        return None
    valid = [number for number in divisors(total) if number > 1]
    batches = [b for b in range(1, 65) if b * ranks * steps % group == 0][:3]
    fixes = [view.flags("rollout.num_generations", valid)] if valid else []
    fixes.append(view.flags("train.micro_batch", batches))
    return fatal_flaw(
        headline=f"a rollout of {total} completions is not divisible by num_generations {group}",
        evidence=(
            f"{micro} per device x {ranks} processes x {steps} steps per generation = {total}",
        ),
        fixes=tuple(fix for fix in fixes if fix),
        source=view.source("rollout.num_generations", "train.micro_batch"),
    )
