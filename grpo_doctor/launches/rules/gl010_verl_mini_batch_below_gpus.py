"""The mini batch leaves GPUs without a completion.

verl multiplies ppo_mini_batch_size by n and divides by the data-parallel ranks. Where nothing is
left it ends with `ppo_mini_batch_size 0 should be larger than 0 after normalization`, which
reaches the user as ActorDiedError; where what is left is no multiple of the micro batch, it ends
as well.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import PLAIN_VERL, Flaw, View, fatal_flaw

DOMAIN = PLAIN_VERL


def check(view: View) -> Flaw | None:
    """The mini batch of one rank, against its micro batch."""
    mini, group = view.integer("train.prompts_per_step"), view.integer("rollout.num_generations")
    ranks = view.processes
    if not mini or not group or not ranks:
        return None
    ranks = max(1, ranks // view.degree("parallel.context"))
    share, micro = mini * group // ranks, view.integer("train.micro_batch")
    dynamic = bool(view.value("train.dynamic_batch"))
    if share > 0 and (dynamic or not micro or share % micro == 0 or view.at_least("0.8.0")):
        return None
    valid = [
        n for n in range(1, 4097) if n * group % ranks == 0 and _divides(micro, n * group // ranks)
    ]
    shares_text = "none" if share == 0 else f"{share}, no multiple of the micro batch of {micro}"
    return fatal_flaw(
        headline=f"of a mini batch of {mini} prompts each rank gets {shares_text}",
        evidence=(
            f"{mini} prompts x {group} completions / {ranks} ranks = {mini * group / ranks:g}",
        ),
        fixes=(view.flag("train.prompts_per_step", min(valid, key=lambda n: abs(n - mini))),)
        if valid
        else (),
        source=view.source("train.prompts_per_step", "train.micro_batch"),
    )


def _divides(micro: int | None, share: int) -> bool:
    return share > 0 and (not micro or share % micro == 0)
