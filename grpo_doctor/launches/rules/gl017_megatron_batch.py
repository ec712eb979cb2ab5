"""Megatron cannot divide its global batch.

The global batch is micro batch x data-parallel ranks x a whole number of accumulation steps.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import SWIFT_MEGATRON, Flaw, View, fatal_flaw

DOMAIN = SWIFT_MEGATRON


def check(view: View) -> Flaw | None:
    """global_batch_size over micro batch and data-parallel ranks."""
    batch, micro = view.integer("train.completions_per_step"), view.integer("train.micro_batch")
    if not batch or not micro or not view.processes:
        return None
    copy = view.degree("parallel.tensor", "parallel.pipeline", "parallel.context")
    ranks = view.processes // copy
    if ranks == 0 or batch % (micro * ranks) == 0:
        return None
    step = micro * ranks
    return fatal_flaw(
        headline=f"a global batch of {batch} is not divisible by {step}",
        evidence=(f"{micro} per micro batch x {ranks} data-parallel ranks = {step}",),
        fixes=(view.flags("train.completions_per_step", [step * n for n in (1, 2, 4, 8)]),),
        source=view.source("train.completions_per_step", "train.micro_batch"),
    )
