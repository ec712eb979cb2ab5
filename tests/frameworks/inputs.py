"""A tiny model and prompts, in the form that each framework reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PROMPTS = 512


def write_model(folder: Path) -> Path:
    """A random Qwen2 with one token per byte."""
    from grpo_doctor_trainer.model.tiny import tiny_model, tiny_tokenizer

    if not (folder / "config.json").exists():
        tokenizer = tiny_tokenizer()
        tiny_model(tokenizer).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def write_prompts(folder: Path) -> Path:
    """train.parquet and val.parquet for verl, openrlhf.jsonl, swift.jsonl."""
    folder.mkdir(parents=True, exist_ok=True)
    sums = [(f"{n}+{n}", str(2 * n)) for n in range(PROMPTS)]
    _lines(folder / "openrlhf.jsonl", [{"input": ask, "label": label} for ask, label in sums])
    _lines(folder / "swift.jsonl", [{"messages": _chat(ask), "label": ans} for ask, ans in sums])
    verl = [
        {
            "data_source": "sums",
            "prompt": _chat(ask),
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": label},
            "extra_info": {"index": number},
        }
        for number, (ask, label) in enumerate(sums)
    ]
    _parquet(folder / "train.parquet", verl)
    _parquet(folder / "val.parquet", verl[:8])
    return folder


def _chat(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def _lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def _parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    from datasets import Dataset

    Dataset.from_list(rows).to_parquet(str(path))
