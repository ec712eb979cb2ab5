"""What is set about DeepSpeed before its engine is made."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the trainer extra")
pytest.importorskip("deepspeed", reason="needs the trainer extra")

from grpo_doctor_trainer import engine as accelerator  # noqa: E402
from grpo_doctor_trainer.config import TrainerConfig  # noqa: E402
from grpo_doctor_trainer.ranks import Ranks  # noqa: E402

_MUON = "deepspeed.runtime.zero.muon.original_muon"


def test_muon_is_imported_without_the_compiler_that_others_get(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiler = import_module("deepspeed.runtime.compiler")
    compiles = compiler.compile
    monkeypatch.delitem(sys.modules, _MUON, raising=False)
    accelerator._import_muon_uncompiled()
    assert not hasattr(sys.modules[_MUON].muon_update, "_torchdynamo_orig_callable")
    assert compiler.compile is compiles


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
    assert accelerator.default_dtype(config, torch.device(device)) == dtype


def asked_for(monkeypatch: pytest.MonkeyPatch, deepspeed: str | None, device: str) -> Any:
    """What accelerate is asked for."""
    for name in ("ACCELERATE_MIXED_PRECISION", "FSDP_VERSION", "ACCELERATE_USE_DEEPSPEED"):
        monkeypatch.setenv(name, "of the launcher")
    monkeypatch.setattr(accelerator, "Accelerator", lambda **arguments: arguments)
    monkeypatch.setattr(accelerator, "DeepSpeedPlugin", lambda hf_ds_config: hf_ds_config)
    ranks = Ranks(rank=0, world_size=2, local_rank=0, device=torch.device(device), threads=1)
    config = TrainerConfig(deepspeed=deepspeed, gradient_accumulation_steps=3)
    return accelerator.make_accelerator(config, ranks, torch.bfloat16)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_without_deepspeed_ranks_are_on_the_cpu_where_their_device_is(
    monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    assert asked_for(monkeypatch, None, device)["cpu"] == (device == "cpu")
    remaining = [name for name in os.environ if name.startswith(("ACCELERATE_", "FSDP_"))]
    assert remaining == []


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_deepspeed_is_told_what_the_flags_say(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    arguments = asked_for(monkeypatch, "zero3_offload", device)
    settings = arguments["deepspeed_plugin"]
    assert arguments["gradient_accumulation_steps"] == 3
    assert "cpu" not in arguments
    assert os.environ["ACCELERATE_USE_DEEPSPEED"] == "true"
    assert "ACCELERATE_MIXED_PRECISION" not in os.environ
    assert settings["bf16"] == {"enabled": True}
    assert settings["zero_optimization"]["offload_param"]["pin_memory"] == (device == "cuda")
    assert settings["train_batch_size"] % 2 == 0
