"""DeepSpeed's configuration from presets and from the user's file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.engine import (
    deepspeed_config,
    fill_sizes,
    zero_stage,
)
from grpo_doctor_trainer.errors import ConfigError
from grpo_doctor_trainer.validation import DEEPSPEED_PRESETS


def made(choice: str, *, dtype: str = "float32", on_gpu: bool = False) -> dict[str, Any]:
    config = TrainerConfig(
        deepspeed=choice, per_device_train_batch_size=4, gradient_accumulation_steps=3
    )
    return deepspeed_config(config, world_size=2, dtype=dtype, on_gpu=on_gpu)


def user_file(folder: Path, **settings: Any) -> str:
    path = folder / "mine.json"
    path.write_text(json.dumps(settings), encoding="utf-8")
    return str(path)


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


@pytest.mark.parametrize(
    ("dtype", "bf16", "fp16"),
    [("float32", False, False), ("bfloat16", True, False), ("float16", False, True)],
)
def test_dtype_switches_one_section_on(dtype: str, bf16: bool, fp16: bool) -> None:
    settings = made("zero2", dtype=dtype)
    assert (settings["bf16"]["enabled"], settings["fp16"]["enabled"]) == (bf16, fp16)


def test_host_memory_is_pinned_and_adam_compiled_only_for_a_gpu() -> None:
    for on_gpu in (False, True):
        settings = made("zero3_offload", on_gpu=on_gpu)
        assert settings["zero_optimization"]["offload_param"]["pin_memory"] is on_gpu
        assert settings["zero_force_ds_cpu_optimizer"] is on_gpu


def test_zero3_saves_whole_weights_and_does_not_prefetch() -> None:
    zero = made("zero3")["zero_optimization"]
    assert zero["stage3_gather_16bit_weights_on_model_save"] is True
    assert zero["stage3_prefetch_bucket_size"] == 0


def test_auto_in_a_file_is_filled_and_the_rest_kept(tmp_path: Path) -> None:
    path = user_file(
        tmp_path,
        zero_optimization={"stage": 1, "reduce_bucket_size": 5},
        train_batch_size="auto",
        bf16={"enabled": "auto"},
    )
    settings = made(path, dtype="bfloat16")
    assert settings["train_batch_size"] == 24
    assert settings["bf16"]["enabled"] is True
    assert settings["zero_optimization"] == {"stage": 1, "reduce_bucket_size": 5}


def test_a_file_that_contradicts_the_flags_is_refused(tmp_path: Path) -> None:
    path = user_file(tmp_path, zero_optimization={"stage": 1}, train_batch_size=7)
    with pytest.raises(ConfigError, match=r'train_batch_size is 7.*make it 24; write "auto"'):
        made(path)


@pytest.mark.parametrize("section", ["optimizer", "scheduler"])
def test_a_file_with_an_optimizer_is_refused(tmp_path: Path, section: str) -> None:
    path = user_file(tmp_path, zero_optimization={"stage": 1}, **{section: {"type": "Adam"}})
    with pytest.raises(ConfigError, match=f"take the section {section} out"):
        made(path)


def test_a_file_without_zero_and_a_broken_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no section zero_optimization"):
        made(user_file(tmp_path))
    broken = tmp_path / "broken.json"
    broken.write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot be read as JSON"):
        made(str(broken))


@pytest.mark.parametrize(
    ("choice", "stage"),
    [(None, None), *((preset, int(preset[4])) for preset in DEEPSPEED_PRESETS)],
)
def test_the_stage_is_in_the_name_of_a_preset(choice: str | None, stage: int | None) -> None:
    assert zero_stage(TrainerConfig(deepspeed=choice)) == stage


@pytest.mark.parametrize(("zero", "stage"), [({"stage": 2}, 2), ({}, 0)])
def test_the_stage_of_a_file_is_what_it_says(
    tmp_path: Path, zero: dict[str, int], stage: int
) -> None:
    path = user_file(tmp_path, zero_optimization=zero)
    assert zero_stage(TrainerConfig(deepspeed=path)) == stage


@pytest.mark.parametrize("preset", DEEPSPEED_PRESETS)
def test_gradients_are_sent_in_buckets_where_they_are_cut(preset: str) -> None:
    zero = made(preset)["zero_optimization"]
    buckets = {"1": 200_000_000, "2": 200_000_000, "3": "auto"}
    assert zero.get("reduce_bucket_size") == buckets.get(preset[4])
    assert zero.get("overlap_comm") == (None if preset[4] == "0" else False)


def test_sizes_on_auto_follow_the_width_of_the_model_and_others_stay() -> None:
    zero: dict[str, Any] = {"reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": 7}
    fill_sizes(zero, 100)
    assert zero == {"reduce_bucket_size": 10_000, "stage3_prefetch_bucket_size": 7}
    every: dict[str, object] = dict.fromkeys(
        ("stage3_prefetch_bucket_size", "stage3_param_persistence_threshold"), "auto"
    )
    fill_sizes(every, 100)
    assert list(every.values()) == [9_000, 1_000]


def test_what_a_file_says_as_the_flags_do_is_accepted(tmp_path: Path) -> None:
    path = user_file(tmp_path, zero_optimization={"stage": 1}, train_batch_size=24)
    assert made(path)["train_batch_size"] == 24


@pytest.mark.parametrize("content", ["[]", '{"zero_optimization": 1}', "{}"])
def test_a_file_needs_a_section_for_zero(tmp_path: Path, content: str) -> None:
    path = tmp_path / "mine.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match="has no section zero_optimization"):
        made(str(path))
