"""Completions as text and as rows of completions.jsonl."""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch

from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.data.experience import TokenBatch, mask_after_end
from grpo_doctor_trainer.model.tiny import tiny_tokenizer
from grpo_doctor_trainer.steplog import decode, write_completions

TOKENIZER = tiny_tokenizer()


def test_text_stops_at_the_first_end_and_has_no_special_tokens() -> None:
    texts = ["12<|end|>3", "<|user|>4<|pad|>", "<|end|><|pad|><|pad|>"]
    tokens = TOKENIZER(texts, padding=True, padding_side="right", return_tensors="pt")["input_ids"]
    mask = mask_after_end(tokens, (TOKENIZER.eos_token_id,))
    batch = TokenBatch(tokens[:, :0], mask[:, :0], tokens, mask)
    assert decode(TOKENIZER, batch) == ["12", "4", ""]


def test_rows_are_appended_as_json_without_nan(tmp_path: Path) -> None:
    config = TrainerConfig(
        output_dir=str(tmp_path / "new"), reward_funcs=["accuracy", "rewards.py:mine"]
    )
    scores = torch.tensor([[1.0, math.nan], [0.0, 0.5]])
    for number in (1, 2):
        write_completions(config, number, ["ä", "b"], ["é", "y"], scores, torch.tensor([0.5, -0.5]))
    text = (tmp_path / "new" / "completions.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["step"] for row in rows] == [1, 1, 2, 2]
    assert rows[0] == {
        "step": 1,
        "prompt": "ä",
        "completion": "é",
        "rewards": {"accuracy": 1.0, "mine": None},
        "advantage": 0.5,
    }
