"""What a run says of its steps: numbers under TRL 1.16's names, the console, completions."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from grpo_doctor_probes import metrics
from grpo_doctor_trainer.algorithm.loss import SUMS, deviation, groups_without_signal
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.console import LOG
from grpo_doctor_trainer.data.experience import TokenBatch
from grpo_doctor_trainer.ranks import Ranks, sum_over_ranks
from grpo_doctor_trainer.rewards.functions import reward_names

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


COMPLETIONS_JSONL = "completions.jsonl"


def decode(tokenizer: Any, tokens: TokenBatch) -> list[str]:
    """Return each completion as text, without end, padding and other special tokens."""
    lengths = tokens.completion_mask.sum(dim=1).tolist()
    rows = zip(tokens.completion_tokens.tolist(), lengths, strict=True)
    texts: list[str] = tokenizer.batch_decode(
        [row[:length] for row, length in rows], skip_special_tokens=True
    )
    return texts


def write_completions(  # noqa: PLR0913 - one argument per column of the table
    config: TrainerConfig,
    number: int,
    prompts: list[str],
    completions: list[str],
    scores: torch.Tensor,
    advantages: torch.Tensor,
) -> None:
    """Append the rows of rank 0 to `completions.jsonl` and say where they are.

    Args:
        config: of the run.
        number: the step that the completions are for.
        prompts: per completion, as the model saw it.
        completions: as text.
        scores: [completions, functions], NaN where a function does not apply.
        advantages: [completions].
    """
    names = reward_names(config.reward_funcs)
    values = zip(prompts, completions, scores.tolist(), advantages.tolist(), strict=True)
    rows: list[dict[str, Any]] = [
        {
            "step": number,
            "prompt": prompt,
            "completion": completion,
            "rewards": dict(zip(names, map(_or_none, row), strict=True)),
            "advantage": _or_none(advantage),
        }
        for prompt, completion, row, advantage in values
    ]
    path = Path(config.output_dir) / COMPLETIONS_JSONL
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    LOG.info("  completions of step %d, all %d in %s", number, len(rows), path)


def _or_none(value: float) -> float | None:
    return value if value == value else None  # noqa: PLR0124 - NaN, which JSON does not have


class StepLog:
    """Writes the metrics of steps, every `--logging_steps`, to all places."""

    def __init__(
        self,
        config: TrainerConfig,
        total: int,
        *,
        writes: bool,
        saved: dict[str, Any] | None = None,
    ) -> None:
        self._every = config.logging_steps
        self._total = total
        self._writes = writes
        saved = saved or {}
        self._tokens: float = saved.get("tokens", 0.0)
        self._rewards: list[float] = list(saved.get("rewards", []))
        self._first = len(self._rewards) + 1

    def state(self) -> dict[str, Any]:
        """Return the sums, for a checkpoint."""
        return {"tokens": self._tokens, "rewards": list(self._rewards)}

    def write(self, number: int, values: Metrics, seconds: float) -> None:
        """Log one step; `step_tokens` are the prompt and completion tokens trained on."""
        values = dict(values)
        tokens = values.pop("step_tokens")
        self._tokens += tokens
        values |= {
            "num_tokens": self._tokens,
            "tokens_per_second": tokens / seconds,
            "step_time": seconds,
        }
        self._rewards.append(values["reward"])
        if self._writes and (number % self._every == 0 or number in {self._first, self._total}):
            LOG.info(self._line(number, values))
            metrics(number, values)

    def finish(self) -> None:
        """Write how the reward has changed, by means of a tenth of the steps at each end."""
        # A step in which no reward function applied has no reward.
        rewards = [reward for reward in self._rewards if math.isfinite(reward)]
        if self._writes and len(rewards) > 1:
            ends = max(1, len(rewards) // 10)
            first, last = sum(rewards[:ends]) / ends, sum(rewards[-ends:]) / ends
            LOG.info("reward %.3f -> %.3f", first, last)

    def _line(self, number: int, values: Metrics) -> str:
        width = len(str(self._total))
        parts = [
            f"step {number:{width}d}/{self._total}",
            f"reward {values['reward']:.3f} +-{values['reward_std']:.3f}",
            f"loss {values['loss']:+.4f}",
            (
                f"length {values['completions/mean_length']:.1f}"
                f" ({values['completions/clipped_ratio']:.0%} clipped)"
            ),
            # Without a token in the loss, as where every completion was cut off, there is none.
            f"kl {values['kl']:.4f}" if "kl" in values else "",
            f"ratio clip {values['clip_ratio/region_mean']:.1%}",
            f"lr {values['learning_rate']:.1e}",
            f"{values['tokens_per_second']:,.0f} tok/s",
            f"{values['step_time']:.2f} s",
        ]
        return " | ".join(part for part in parts if part)
