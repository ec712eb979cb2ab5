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
    token_rows = [
        row[: int(length)].tolist()
        for row, length in zip(
            tokens.completion_tokens, tokens.completion_mask.sum(dim=1), strict=True
        )
    ]
    texts: list[str] = tokenizer.batch_decode(token_rows, skip_special_tokens=True)
    return texts


def write_completions(  # noqa: PLR0913 - one argument per column of the table
    config: TrainerConfig,
    number: int,
    prompts: list[str],
    completions: list[str],
    scores: torch.Tensor,
    advantages: torch.Tensor,
) -> None:
    """Append the rows of rank 0 to `completions.jsonl` and shows the best and the worst.

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
    folder = Path(config.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / COMPLETIONS_JSONL).open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    ranked = sorted(rows, key=lambda row: row["advantage"] or 0.0)
    LOG.info("  completions of step %d: the best and the worst of %d", number, len(rows))
    for title, row in (("best", ranked[-1]), ("worst", ranked[0])):
        LOG.info("    %-5s  %s", title, _numbers(row))
        LOG.info("      prompt      %s", _one_line(row["prompt"], from_end=True))
        LOG.info("      completion  %s", _one_line(row["completion"], from_end=False))


def _or_none(value: float) -> float | None:
    return value if value == value else None  # noqa: PLR0124 - NaN, which JSON does not have


def _numbers(row: dict[str, Any]) -> str:
    scores = (f"{name} {_shown(value)}" for name, value in row["rewards"].items())
    return "  ".join([f"advantage {_shown(row['advantage'], '+')}", *scores])


def _shown(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{value:{sign}.3g}"


def _one_line(text: str, *, from_end: bool) -> str:
    r"""Show line breaks as \n; of a long text only the end that says more."""
    quoted = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    if len(quoted) <= _SHOWN:
        return quoted or "(empty)"
    return f"...{quoted[-_SHOWN:]}" if from_end else f"{quoted[:_SHOWN]}..."
