"""The generation batch is no whole number of steps.

A generation batch is handed out in steps of per-device batch x processes completions. Where that
does not divide it, TRL and ms-swift refuse to start; so they do where generation_batch_size and
steps_per_generation are both given.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import SWIFT_AND_TRL, Flaw, View, fatal_flaw

DOMAIN = SWIFT_AND_TRL


def check(view: View) -> Flaw | None:
    """generation_batch_size against the global batch, and against steps_per_generation."""
    batch, micro = (
        view.launch.settings.get("rollout.completions"),
        view.integer("train.micro_batch"),
    )
    if not batch:
        return None
    if view.sets("rollout.steps_per_generation"):
        return fatal_flaw(
            headline="generation_batch_size and steps_per_generation exclude each other",
            evidence=("each of the two follows from the other",),
            fixes=("leave out --generation_batch_size",),
            source=view.source("rollout.completions"),
        )
    if not micro or not view.processes or batch % (micro * view.processes) == 0:
        return None
    step = micro * view.processes
    valid = [step * factor for factor in (1, 2, 4, 8)]
    return fatal_flaw(
        headline=f"a generation batch of {batch} is not divisible by the global batch of {step}",
        evidence=(f"{micro} per device x {view.processes} processes = {step}",),
        fixes=(view.flags("rollout.completions", valid),),
        source=view.source("rollout.completions"),
    )
