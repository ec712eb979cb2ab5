"""The mini batch is larger than the batch.

verl makes its mini batches out of one training batch: ppo_mini_batch_size must not be above
train_batch_size.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import VERL, Flaw, View, fatal_flaw

DOMAIN = VERL


def check(view: View) -> Flaw | None:
    """ppo_mini_batch_size against train_batch_size, both in prompts."""
    mini, batch = view.integer("train.prompts_per_step"), view.integer("rollout.prompts")
    if not mini or not batch or mini <= batch:
        return None
    return fatal_flaw(
        headline=f"the mini batch of {mini} prompts is larger than the batch of {batch}",
        evidence=(f"ppo_mini_batch_size {mini}, train_batch_size {batch}",),
        fixes=(view.flag("train.prompts_per_step", batch), view.flag("rollout.prompts", mini)),
        source=view.source("train.prompts_per_step", "rollout.prompts"),
    )
