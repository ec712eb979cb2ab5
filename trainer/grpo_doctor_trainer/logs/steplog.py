"""Where a run is logged: the console, the recorder, completions.jsonl."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch

from grpo_doctor_probes import metrics
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.data.experience import TokenBatch
from grpo_doctor_trainer.logs.console import LOG, sparkline
from grpo_doctor_trainer.logs.metrics import Metrics
from grpo_doctor_trainer.rewards.functions import reward_names

COMPLETIONS_JSONL = "completions.jsonl"
_SHOWN = 200


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
    """Append the rows of rank 0 to `completions.jsonl` and show the best and the worst.

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
    rows.sort(key=lambda row: row["advantage"] or 0.0)
    LOG.info("  completions of step %d, all %d in %s", number, len(rows), path)
    for title, row in (("best", rows[-1]), ("worst", rows[0])):
        LOG.info("    %-5s  %.*s", title, _SHOWN, json.dumps(row, ensure_ascii=False))


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
        self._evaluations: list[float] = list(saved.get("evaluations", []))

    def state(self) -> dict[str, Any]:
        """Return the sums, for a checkpoint."""
        return {
            "tokens": self._tokens,
            "rewards": list(self._rewards),
            "evaluations": list(self._evaluations),
        }

    def evaluated(self, number: int, values: Metrics) -> None:
        """Log an evaluation."""
        self._evaluations.append(values["eval_reward"])
        if self._writes:
            LOG.info(
                "evaluation after step %d | reward %.3f | length %.1f (%.0f%% clipped)",
                number, values["eval_reward"], values["eval_completions/mean_length"],
                100 * values["eval_completions/clipped_ratio"],
            )  # fmt: skip
            metrics(number, values)

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
        """Write the learning curve."""
        # A step in which no reward function applied has no reward.
        rewards = [reward for reward in self._rewards if math.isfinite(reward)]
        if self._writes and len(rewards) > 1:
            ends = max(1, len(rewards) // 10)
            first, last = sum(rewards[:ends]) / ends, sum(rewards[-ends:]) / ends
            LOG.info("reward %.3f -> %.3f  %s", first, last, sparkline(rewards))
        evaluations = [reward for reward in self._evaluations if math.isfinite(reward)]
        if self._writes and evaluations:
            first, last = evaluations[0], evaluations[-1]
            LOG.info("evaluation %.3f -> %.3f  %s", first, last, sparkline(evaluations))

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
