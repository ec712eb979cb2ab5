"""Numbers of one step, over all ranks, under TRL's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from grpo_doctor_trainer.advantages import groups_without_signal
from grpo_doctor_trainer.loss import LOSS_STATISTICS

if TYPE_CHECKING:
    from collections.abc import Sequence

Metrics = dict[str, float]


def reward_metrics(
    rewards: torch.Tensor, scores: torch.Tensor, names: Sequence[str], group_size: int
) -> Metrics:
    """Sums up the rewards of one rollout.

    Args:
        rewards: [completions of all ranks].
        scores: [completions of all ranks, functions], NaN where not applicable.
        names: of the functions.
        group_size: completions per prompt.
    """
    found = {
        "reward": float(rewards.mean()),
        "reward_std": float(rewards.view(-1, group_size).std(dim=1).mean()),
        "frac_reward_zero_std": groups_without_signal(rewards, group_size),
    }
    for place, name in enumerate(names):
        found[f"rewards/{name}/mean"] = float(scores[:, place].nanmean())
    return found


def completion_metrics(lengths: torch.Tensor, ended: torch.Tensor) -> Metrics:
    """Sums up the lengths of completions in tokens; `ended` is 1 where an end token came."""
    return {
        "completions/mean_length": float(lengths.mean()),
        "completions/min_length": float(lengths.min()),
        "completions/max_length": float(lengths.max()),
        "completions/clipped_ratio": float(1 - ended.mean()),
    }


def loss_metrics(sums: torch.Tensor, micro_batches: int) -> Metrics:
    """Turns the sums of `loss.LOSS_STATISTICS` over micro-batches and ranks into means."""
    found = dict(zip(LOSS_STATISTICS, sums.tolist(), strict=True))
    loss, step_tokens = found.pop("loss") / micro_batches, found.pop("tokens")
    tokens = max(1.0, found.pop("completion_tokens"))
    means = {name: value / tokens for name, value in found.items()}
    return {"loss": loss, "step_tokens": step_tokens, **means}
