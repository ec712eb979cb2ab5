"""A user's own TRL script that takes GRPOConfig's flags, as TRL's `TrlParser` scripts do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import advice_work  # type: ignore[import-not-found, unused-ignore]
import torch
from datasets import Dataset
from transformers import HfArgumentParser, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer


@dataclass
class Script:
    model_name_or_path: str


def read(batch: dict[str, list[str]]) -> dict[str, list[str]]:
    return {"prompt": [advice_work.read(row) for row in batch["prompt"]]}


def tokenizer(model: str) -> Any:
    """By its file: the settings beside it are of a newer transformers than some jobs have."""
    marks = {"pad_token": "<|pad|>", "eos_token": "<|end|>"}
    inputs = ["input_ids", "attention_mask"]
    file = str(Path(model) / "tokenizer.json")
    return PreTrainedTokenizerFast(tokenizer_file=file, model_input_names=inputs, **marks)


def main() -> None:
    torch.set_num_threads(1)
    script, config = HfArgumentParser((Script, GRPOConfig)).parse_args_into_dataclasses()
    rows = Dataset.from_dict({"prompt": advice_work.rows()}).with_transform(read)
    GRPOTrainer(
        model=script.model_name_or_path, reward_funcs=advice_work.judges(), args=config,
        train_dataset=rows, processing_class=tokenizer(script.model_name_or_path),
    ).train()  # fmt: skip


if __name__ == "__main__":
    main()
