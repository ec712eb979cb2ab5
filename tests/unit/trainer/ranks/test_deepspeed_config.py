"""DeepSpeed's configuration from the choices of `--deepspeed`."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.engine import deepspeed_config, fill_sizes

DEEPSPEED_PRESETS = ("zero0", "zero1", "zero2", "zero3", "zero2_offload", "zero3_offload")


def made(choice: str, *, dtype: str = "float32", on_gpu: bool = False) -> dict[str, Any]:
    config = TrainerConfig(
        deepspeed=choice, per_device_train_batch_size=4, gradient_accumulation_steps=3
    )
    return deepspeed_config(config, world_size=2, dtype=dtype, on_gpu=on_gpu)


@pytest.mark.parametrize("preset", DEEPSPEED_PRESETS)
def test_presets(preset: str) -> None:
    settings = made(preset)
    zero = settings["zero_optimization"]
    stage = int(preset.removeprefix("zero")[0])
    assert zero["stage"] == stage
    assert ("offload_optimizer" in zero) == preset.endswith("_offload")
    assert ("offload_param" in zero) == (preset == "zero3_offload")
    assert settings["train_batch_size"] == 2 * 4 * 3
    assert settings["train_micro_batch_size_per_gpu"] == 4
    assert settings["gradient_accumulation_steps"] == 3
    assert settings["gradient_clipping"] == 1.0


def test_host_memory_is_pinned_and_adam_compiled_only_for_a_gpu() -> None:
    for on_gpu in (False, True):
        settings = made("zero3_offload", on_gpu=on_gpu)
        assert settings["zero_optimization"]["offload_param"]["pin_memory"] is on_gpu
        assert settings["zero_force_ds_cpu_optimizer"] is on_gpu


def test_zero3_saves_whole_weights_and_does_not_prefetch() -> None:
    zero = made("zero3")["zero_optimization"]
    assert zero["stage3_gather_16bit_weights_on_model_save"] is True
    assert zero["stage3_prefetch_bucket_size"] == 0


@pytest.mark.parametrize("preset", DEEPSPEED_PRESETS)
def test_gradients_are_sent_in_buckets_where_they_are_cut(preset: str) -> None:
    zero = made(preset)["zero_optimization"]
    buckets = {"1": 200_000_000, "2": 200_000_000, "3": None}
    assert zero.get("reduce_bucket_size") == buckets.get(preset[4])
    assert zero.get("overlap_comm") == (None if preset[4] == "0" else False)


def test_sizes_of_stage_3_follow_the_width_of_the_model() -> None:
    zero: dict[str, Any] = {"stage": 3}
    fill_sizes(zero, 100)
    assert zero["reduce_bucket_size"] == 10_000
    assert zero["stage3_param_persistence_threshold"] == 1_000
    stage_2 = {"stage": 2}
    fill_sizes(stage_2, 100)
    assert stage_2 == {"stage": 2}
