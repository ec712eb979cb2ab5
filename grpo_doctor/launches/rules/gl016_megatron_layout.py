"""The parallel layout does not divide the GPUs.

Tensor x pipeline x context parallelism is one copy of the model; the number of GPUs must be a
multiple of that, and the experts must divide among their ranks.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import MEGATRON, Flaw, View, divisors, fatal_flaw

DOMAIN = MEGATRON


def check(view: View) -> Flaw | None:
    """GPUs over a copy's GPUs; experts over their ranks."""
    if not view.processes:
        return None
    copy = view.degree("parallel.tensor", "parallel.pipeline", "parallel.context")
    if view.processes % copy:
        return fatal_flaw(
            headline=f"one copy of the model takes {copy} GPUs: "
            f"{view.processes} is not divisible by that",
            evidence=("tensor x pipeline x context parallelism must divide the GPUs",),
            fixes=(view.flags("parallel.tensor", divisors(view.processes, 8)),),
            source=view.source("parallel.tensor", "parallel.pipeline", "parallel.context"),
        )
    expert = view.degree("parallel.expert")
    experts = view.model.experts if view.model else None
    if experts and experts % expert:
        return fatal_flaw(
            headline=f"{experts} experts are not divisible by {expert} ranks",
            evidence=(f"the model has {experts} experts per layer",),
            fixes=(view.flags("parallel.expert", divisors(experts, 8)),),
            source=view.source("parallel.expert"),
        )
    return None
