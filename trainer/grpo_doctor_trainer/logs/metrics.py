"""Numbers of one step, over all ranks, under TRL 1.16's names."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from grpo_doctor_trainer.algorithm.loss import SUMS, deviation, groups_without_signal
from grpo_doctor_trainer.ranks import Ranks, sum_over_ranks

Metrics = dict[str, float]


def reward_metrics(
    rewards: torch.Tensor, scores: torch.Tensor, names: Sequence[str], group_size: int
) -> Metrics:
    """Sum up the rewards of one rollout.

    Args:
        rewards: [completions of all ranks], NaN for those without a reward.
        scores: [completions of all ranks, functions], NaN where not applicable.
        names: of the functions.
        group_size: completions per prompt.

    Returns:
        what applies to at least one completion; deviations are over the whole batch.
        `rewards/missing_ratio`, the share of completions to which no function applied, is left
        out where it is 0.
    """
    values = {
        "reward": float(rewards.nanmean()),
        "reward_std": float(deviation(rewards)),
        "frac_reward_zero_std": groups_without_signal(rewards, group_size),
    }
    missing = float(rewards.isnan().float().mean())
    if missing:
        values["rewards/missing_ratio"] = missing
    for column, name in enumerate(names):
        values[f"rewards/{name}/mean"] = float(scores[:, column].nanmean())
        values[f"rewards/{name}/std"] = float(deviation(scores[:, column]))
    shown = ("reward", "reward_std")  # the log line shows these
    return {name: value for name, value in values.items() if name in shown or not math.isnan(value)}


def completion_metrics(lengths: torch.Tensor, end_flags: torch.Tensor) -> Metrics:
    """Sum up the lengths of completions.

    Completions without one were cut off; where all were, the terminated lengths are 0, as in TRL.

    Args:
        lengths: [completions of all ranks], in tokens.
        end_flags: the same shape, 1 where an end token came.
    """
    terminated = lengths[end_flags > 0]
    terminated = terminated if len(terminated) else lengths.new_zeros(1)
    values = {"completions/clipped_ratio": float(1 - end_flags.mean())}
    for name, tokens in (("", lengths), ("terminated_", terminated)):
        values |= {
            f"completions/mean_{name}length": float(tokens.mean()),
            f"completions/min_{name}length": float(tokens.min()),
            f"completions/max_{name}length": float(tokens.max()),
        }
    return values


def loss_metrics(parts: list[torch.Tensor], ranks: Ranks) -> Metrics:
    """Turn the sums of this rank's micro-batches into metrics of the step; collective.

    Means are over the tokens of the whole optimizer step; TRL averages those of its micro-batches.

    Args:
        parts: what `loss_sums` gave for each micro-batch.
        ranks: the ranks of this job.

    Returns:
        `kl` only with a reference model, `sampling/...` only where the rollout engine gave
        log-probs; `step_tokens` are the prompt and completion tokens of the step.
    """
    sums = dict(zip(SUMS, sum_over_ranks(torch.stack(parts).sum(0), ranks).tolist(), strict=True))
    tokens = max(1.0, sums["loss_tokens"])
    values = {
        "loss": sums["loss"] / sums["micro_batches"],
        "step_tokens": sums["tokens"],
        "entropy": sums["entropy"] / tokens,
        "clip_ratio/low_mean": sums["clipped_low"] / tokens,
        "clip_ratio/high_mean": sums["clipped_high"] / tokens,
        "clip_ratio/region_mean": (sums["clipped_low"] + sums["clipped_high"]) / tokens,
    }
    if sums["kl_tokens"]:
        values["kl"] = sums["kl"] / sums["kl_tokens"]
    if compared := sums["gap_tokens"]:
        values["sampling/sampling_logp_difference/mean"] = sums["gap"] / compared
        values["sampling/importance_sampling_ratio/mean"] = sums["weight"] / compared
    return values
