"""Numbers of one step, over all ranks, under TRL's names: what the log and the recorder get."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from grpo_doctor_probes import metrics
from grpo_doctor_trainer.advantages import groups_without_signal
from grpo_doctor_trainer.console import LOG, sparkline
from grpo_doctor_trainer.loss import LOSS_STATISTICS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grpo_doctor_trainer.config import TrainerConfig

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


class StepLog:
    """Writes the metrics of steps: a line now and then, all of them to the recorder."""

    def __init__(self, config: TrainerConfig, total: int, *, writes: bool) -> None:
        self._every = config.logging_steps
        self._total = total
        self._with_kl = config.beta > 0
        self._writes = writes
        self._tokens = 0.0
        self._rewards: list[float] = []

    def write(self, number: int, found: Metrics, seconds: float) -> None:
        """Logs one step; `step_tokens` are the prompt and completion tokens trained on."""
        found = dict(found)
        tokens = found.pop("step_tokens")
        self._tokens += tokens
        found |= {
            "num_tokens": self._tokens,
            "tokens_per_second": tokens / seconds,
            "step_time": seconds,
        }
        self._rewards.append(found["reward"])
        if self._writes and (number % self._every == 0 or number in {1, self._total}):
            metrics(number, found)
            LOG.info(self._line(number, found))

    def finish(self) -> None:
        """Writes the learning curve."""
        if self._writes and len(self._rewards) > 1:
            ends = max(1, len(self._rewards) // 10)
            first, last = sum(self._rewards[:ends]) / ends, sum(self._rewards[-ends:]) / ends
            LOG.info("reward %.3f -> %.3f  %s", first, last, sparkline(self._rewards))

    def _line(self, number: int, found: Metrics) -> str:
        width = len(str(self._total))
        parts = [
            f"step {number:{width}d}/{self._total}",
            f"reward {found['reward']:.3f} +-{found['reward_std']:.3f}",
            f"loss {found['loss']:+.4f}",
            (
                f"length {found['completions/mean_length']:.1f}"
                f" ({found['completions/clipped_ratio']:.0%} clipped)"
            ),
            f"kl {found['kl']:.4f}" if self._with_kl else "",
            f"ratio clip {found['clip_ratio/region_mean']:.1%}",
            f"lr {found['learning_rate']:.1e}",
            f"{found['tokens_per_second']:,.0f} tok/s",
            f"{found['step_time']:.2f} s",
        ]
        return " | ".join(part for part in parts if part)
