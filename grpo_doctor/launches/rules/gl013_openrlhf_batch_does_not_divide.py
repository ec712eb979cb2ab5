"""OpenRLHF cannot divide its training batch.

DeepSpeed takes the batch of one step as micro batch x accumulation x ranks, and OpenRLHF computes
the accumulation from the others: it must come out whole, and a rollout must have a completion for
every rank.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import OPENRLHF, Flaw, View, fatal_flaw

DOMAIN = OPENRLHF


def check(view: View) -> Flaw | None:
    """train batch over micro batch and ranks."""
    batch, micro = view.integer("train.completions_per_step"), view.integer("train.micro_batch")
    ranks = view.processes
    if not batch or not micro or not ranks:
        return None
    if view.value("train.dynamic_batch"):
        return None
    ranks = max(1, ranks // view.degree("parallel.context", "parallel.tensor"))
    step = micro * ranks
    if batch % step == 0:
        return None
    return fatal_flaw(
        headline=f"a training batch of {batch} is not divisible by {step}",
        evidence=(f"{micro} per micro batch x {ranks} ranks = {step}",),
        fixes=(view.flags("train.completions_per_step", [step * n for n in (1, 2, 4, 8)]),),
        source=view.source("train.completions_per_step", "train.micro_batch"),
    )
