"""The evaluation batch is no whole number of groups.

An evaluation generates as well. The evaluation batch per device x processes must hold whole
groups, else the framework refuses to start, though training alone would run.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import PLAIN_SWIFT_AND_TRL, Flaw, View, fatal_flaw

DOMAIN = PLAIN_SWIFT_AND_TRL


def check(view: View) -> Flaw | None:
    """The evaluation batch, where there is an evaluation."""
    strategy = view.launch.options.get("eval_strategy", "no")
    group = view.integer("rollout.num_generations")
    batch, ranks = view.integer("eval.micro_batch"), view.processes
    if strategy in ("no", None):
        return None
    if view.launch.framework == "ms-swift" and view.at_least("3.5.0"):
        return None
    if "num_generations_eval" in view.launch.options:
        return None
    if not group or not batch or not ranks or batch * ranks % group == 0:
        return None
    valid = [number for number in range(1, 65) if number * ranks % group == 0][:3]
    return fatal_flaw(
        headline=f"an evaluation batch of {batch * ranks} is not divisible by "
        f"num_generations {group}",
        evidence=(f"{batch} per device x {ranks} processes = {batch * ranks}",),
        fixes=(view.flags("eval.micro_batch", valid), "or --eval_strategy no"),
        source=view.source("eval.micro_batch", "rollout.num_generations"),
    )
