"""Checks before anything is loaded: each message names the flag and a way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_doctor_trainer.errors import ConfigError
from grpo_doctor_trainer.flags import parse


def message_of(*arguments: str, ranks: int = 2) -> str:
    with pytest.raises(ConfigError) as error:
        parse(arguments, ranks)
    return str(error.value)


def test_groups_must_fill_the_batch_and_valid_sizes_are_listed() -> None:
    message = message_of("--per_device_train_batch_size", "6", "--num_generations", "5")
    assert "--num_generations 5 must divide the generation batch of 12" in message
    assert "(= 2 ranks x --per_device_train_batch_size 6 x --steps_per_generation 1)" in message
    assert message.endswith("valid values here: 2, 3, 4, 6, 12")


def test_every_listed_group_size_is_accepted() -> None:
    message = message_of("--per_device_train_batch_size", "6", "--num_generations", "5")
    for size in message.rpartition("here: ")[2].split(", "):
        parse(["--per_device_train_batch_size", "6", "--num_generations", size], 2)


def test_a_batch_of_one_has_no_valid_group() -> None:
    message = message_of("--per_device_train_batch_size", "1", "--num_generations", "2", ranks=1)
    assert "1 rank x" in message
    assert "raise --per_device_train_batch_size" in message


def test_passes_are_whole_steps() -> None:
    message = message_of("--gradient_accumulation_steps", "2", "--steps_per_generation", "3")
    assert "--steps_per_generation 3 must be a multiple" in message
    assert "valid values here: 2, 4, 6" in message


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("max_completion_length", "0"),
        ("per_device_train_batch_size", "0"),
        ("gradient_accumulation_steps", "-1"),
        ("lora_rank", "0"),
        ("num_iterations", "0"),
        ("beta", "-0.1"),
        ("learning_rate", "-1"),
        ("save_steps", "-1"),
        ("num_generations", "1"),
        ("temperature", "0"),
        ("top_p", "0"),
        ("top_p", "1.1"),
        ("top_k", "0"),
        ("top_k", "-2"),
        ("warmup_ratio", "1.5"),
        ("save_total_limit", "0"),
        ("max_steps", "0"),
        ("num_train_epochs", "0"),
        ("epsilon", "0"),
        ("epsilon_high", "0"),
    ],
)
def test_out_of_range_names_the_flag(flag: str, value: str) -> None:
    assert f"--{flag}" in message_of(f"--{flag}", value)


def test_one_weight_per_reward() -> None:
    message = message_of("--reward_funcs", "accuracy", "--reward_weights", "1", "2")
    assert "2 values for 1 reward functions (accuracy)" in message


def test_deepspeed_is_a_preset_or_a_file(tmp_path: Path) -> None:
    assert "zero3_offload" in message_of("--deepspeed", "zero4")
    assert "there is no such file" in message_of("--deepspeed", str(tmp_path / "missing.json"))
    mine = tmp_path / "mine.json"
    mine.write_text("{}", encoding="utf-8")
    assert parse(["--deepspeed", str(mine)], 2).deepspeed == str(mine)


def test_float16_needs_loss_scaling() -> None:
    message = message_of("--torch_dtype", "float16", "--deepspeed", "none")
    assert "add --deepspeed zero2" in message
    assert parse(["--torch_dtype", "float16"], 2).torch_dtype == "float16"


def test_few_divisors_near_the_wish_are_listed_at_once() -> None:
    arguments = ["--per_device_train_batch_size", "999999999", "--num_generations", "7"]
    listed = message_of(*arguments).rpartition("here: ")[2].split(", ")
    assert 2 <= len(listed) <= 12
    assert all(2 * 999_999_999 % int(size) == 0 for size in listed)


@pytest.mark.parametrize(
    "flag", ["temperature", "learning_rate", "beta", "num_train_epochs", "reward_weights"]
)
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_what_is_no_finite_number_is_refused(flag: str, value: str) -> None:
    assert "is not a finite number" in message_of(f"--{flag}={value}")


@pytest.mark.parametrize("width", ["0", "100", "-64"])
def test_a_width_that_heads_cannot_share(width: str) -> None:
    message = message_of("--embedded_width", width)
    assert message == f"--embedded_width {width} must be a multiple of 64"


def test_a_seed_that_some_rank_could_not_take() -> None:
    assert "--seed 4294967296 must be between" in message_of("--seed", "4294967296")


def test_what_corrects_for_vllm_needs_vllm() -> None:
    message = message_of("--rollout_importance_sampling_mode", "token_mask")
    assert "add --use_vllm true" in message
