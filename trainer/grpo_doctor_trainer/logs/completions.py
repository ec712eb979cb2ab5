"""Completions as text: for the rewards, and for a reader with `--log_completions`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_doctor_trainer.logs.console import LOG
from grpo_doctor_trainer.rewards.functions import reward_names

if TYPE_CHECKING:
    import torch

    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.data.experience import TokenBatch

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
