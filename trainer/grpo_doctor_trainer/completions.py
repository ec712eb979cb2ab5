"""Completions as text: for the rewards, and for a reader with `--log_completions`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_doctor_trainer.console import LOG

if TYPE_CHECKING:
    import torch

    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.experience import TokenBatch

COMPLETIONS_JSONL = "completions.jsonl"
_SHOWN = 200


def decode(tokenizer: Any, tokens: TokenBatch) -> list[str]:
    """Gives each completion as text, without end, padding and other special tokens."""
    kept = [
        row[: int(length)].tolist()
        for row, length in zip(
            tokens.completion_tokens, tokens.completion_mask.sum(dim=1), strict=True
        )
    ]
    texts: list[str] = tokenizer.batch_decode(kept, skip_special_tokens=True)
    return texts


def write_completions(  # noqa: PLR0913 - one argument per column of the table
    config: TrainerConfig,
    number: int,
    prompts: list[str],
    completions: list[str],
    scores: torch.Tensor,
    advantages: torch.Tensor,
) -> None:
    """Appends the rows of rank 0 to `completions.jsonl` and shows the best and the worst."""
    names = [source.rpartition(":")[2] for source in config.reward_funcs]
    folder = Path(config.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / COMPLETIONS_JSONL).open("a", encoding="utf-8") as file:
        rows = zip(prompts, completions, scores.tolist(), advantages.tolist(), strict=True)
        for prompt, completion, values, advantage in rows:
            row = {
                "step": number,
                "prompt": prompt,
                "completion": completion,
                "rewards": dict(
                    zip(names, (v if v == v else None for v in values), strict=True)  # noqa: PLR0124
                ),
                "advantage": advantage,
            }
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    for title, place in (("best", int(advantages.argmax())), ("worst", int(advantages.argmin()))):
        LOG.info("  %-5s %r -> %r", title, prompts[place][-_SHOWN:], completions[place][:_SHOWN])
