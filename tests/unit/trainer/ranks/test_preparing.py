"""What is set about DeepSpeed before its engine is made."""

from __future__ import annotations

import os

import pytest
import torch
from transformers.integrations.deepspeed import (
    is_deepspeed_zero3_enabled,
    unset_hf_deepspeed_config,
)

from grpo_doctor_trainer import engine
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.ranks import Ranks


@pytest.mark.parametrize(
    ("choice", "device", "dtype"),
    [
        ("auto", "cpu", torch.float32),
        ("auto", "cuda", torch.bfloat16),
        ("float32", "cuda", torch.float32),
    ],
)
def test_auto_is_half_precision_on_a_gpu(choice: str, device: str, dtype: object) -> None:
    config = TrainerConfig(torch_dtype=choice)
    assert engine.default_dtype(config, torch.device(device)) == dtype


@pytest.mark.parametrize(("device", "pinned"), [("cpu", False), ("cuda", True)])
def test_the_flags_decide_and_not_the_launcher(
    monkeypatch: pytest.MonkeyPatch, device: str, pinned: bool
) -> None:
    for name in ("ACCELERATE_MIXED_PRECISION", "FSDP_VERSION", "ACCELERATE_USE_DEEPSPEED"):
        monkeypatch.setenv(name, "of the launcher")
    ranks = Ranks(rank=0, world_size=2, local_rank=0, device=torch.device(device), threads=1)
    assert engine.prepare_deepspeed(TrainerConfig(deepspeed=None), ranks, torch.bfloat16) is None
    assert [name for name in os.environ if name.startswith(("ACCELERATE_", "FSDP_"))] == []
    config = TrainerConfig(deepspeed="zero3_offload", gradient_accumulation_steps=3)
    made = engine.prepare_deepspeed(config, ranks, torch.bfloat16)
    assert made is not None
    assert is_deepspeed_zero3_enabled()
    assert made.config["gradient_accumulation_steps"] == 3
    assert made.config["bf16"] == {"enabled": True}
    assert made.config["zero_optimization"]["offload_param"]["pin_memory"] == pinned
    unset_hf_deepspeed_config()
