"""Checks before anything is loaded: each message names the flag and a way out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpo_doctor_trainer.config import EMBEDDED_VL, TrainerConfig
from grpo_doctor_trainer.errors import ConfigError
from grpo_doctor_trainer.flags import parse
from grpo_doctor_trainer.validation import pixel_limit


def message_of(*arguments: str, ranks: int = 2) -> str:
    with pytest.raises(ConfigError) as error:
        parse(arguments, ranks)
    return str(error.value)


def test_groups_must_fill_the_batch_and_valid_sizes_are_listed() -> None:
    message = message_of("--per_device_train_batch_size", "6", "--num_generations", "5")
    assert "--num_generations 5 must divide the generation batch of 12" in message
    assert "(= 2 ranks x --per_device_train_batch_size 6 x --steps_per_generation 1)" in message
    assert message.endswith("valid values here: 2, 3, 4, 6, 12")


def test_passes_are_whole_steps() -> None:
    message = message_of("--gradient_accumulation_steps", "2", "--steps_per_generation", "3")
    assert "--steps_per_generation 3 must be a multiple" in message
    assert "valid values here: 2, 4, 6" in message


def test_deepspeed_is_a_preset_or_a_file(tmp_path: Path) -> None:
    assert "is neither one of zero0" in message_of("--deepspeed", "zero4")
    assert "there is no such file" in message_of("--deepspeed", str(tmp_path / "missing.json"))
    mine = tmp_path / "mine.json"
    mine.write_text("{}", encoding="utf-8")
    assert parse(["--deepspeed", str(mine)], 2).deepspeed == str(mine)


def test_what_corrects_for_vllm_needs_vllm() -> None:
    message = message_of("--rollout_importance_sampling_mode", "token_mask")
    assert "add --use_vllm true" in message


COLOCATED = ("--use_vllm", "true", "--vllm_mode", "colocate")
SERVED = ("--use_vllm", "true", "--vllm_mode", "server")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            (*COLOCATED, "--vllm_max_model_len", "64", "--max_completion_length", "64"),
            "--vllm_max_model_len 64 leaves no room for a prompt",
        ),
        ((*SERVED, "--sleep_level", "1"), "--sleep_level works with --vllm_mode colocate only"),
        (("--reward_timeout", "60", "--ddp_timeout", "60"), "must be below --ddp_timeout 60"),
        (
            ("--freeze_vit", "true", "--freeze_aligner", "true", "--freeze_llm", "true"),
            "leave no weight to train",
        ),
    ],
)
def test_what_cannot_work_together(arguments: tuple[str, ...], words: str) -> None:
    lora = () if "--train_type" in arguments else ("--train_type", "lora")
    assert words in message_of(*arguments, *lora)


@pytest.mark.parametrize(
    "arguments",
    [
        (*COLOCATED, "--vllm_max_model_len", "65", "--max_completion_length", "64"),
        (*SERVED, "--sleep_level", "0"),
        ("--reward_timeout", "59", "--ddp_timeout", "60"),
        ("--max_pixels", "1"),
        ("--freeze_vit", "true", "--freeze_aligner", "true", "--freeze_llm", "false"),
        ("--reward_funcs", "accuracy", "--reward_weights", "2"),
    ],
)
def test_the_nearest_that_works(arguments: tuple[str, ...]) -> None:
    parse([*arguments, "--train_type", "lora"], 2)


@pytest.mark.parametrize(("value", "pixels"), [("", None), ("1003520", 1_003_520)])
def test_the_variable_for_pixels_holds_where_no_option_is(
    value: str, pixels: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_PIXELS", value)
    assert pixel_limit(TrainerConfig()) == pixels
    assert pixel_limit(TrainerConfig(max_pixels=7)) == 7
    monkeypatch.setenv("MAX_PIXELS", "-3")
    with pytest.raises(ConfigError, match="the variable MAX_PIXELS -3 must be"):
        pixel_limit(TrainerConfig())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (False, False, False, 2, 1, 8, False)),
        ({"use_vllm": True, "vllm_mode": "server"}, (False, True, False, 2, 1, 8, False)),
        ({"use_vllm": True, "vllm_mode": "colocate"}, (True, False, False, 2, 1, 8, False)),
        ({"steps_per_generation": 4}, (False, False, True, 4, 2, 16, False)),
        ({"num_iterations": 2}, (False, False, True, 2, 2, 8, False)),
        ({"share_prompts": True, "loss_type": "bnpo"}, (False, False, False, 2, 1, 8, False)),
        ({"share_prompts": True, "loss_type": "grpo"}, (False, False, False, 2, 1, 8, True)),
        ({"share_prompts": False, "loss_type": "grpo"}, (False, False, False, 2, 1, 8, False)),
    ],
)
def test_what_follows_from_the_options(
    options: dict[str, Any], expected: tuple[bool | int, ...]
) -> None:
    fixed: dict[str, Any] = {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4}
    config = TrainerConfig(**{"share_prompts": False, **fixed, **options})
    assert expected == (
        *(config.colocated, config.served, config.off_policy, config.passes_per_generation),
        *(config.steps_per_rollout, config.completions_per_rank, config.groups_prompts),
    )


def test_each_reward_weighs_one_unless_said() -> None:
    assert TrainerConfig(reward_funcs=["a", "b"]).weights == [1.0, 1.0]
    assert TrainerConfig(reward_funcs=["a", "b"], reward_weights=[2.0, 0.5]).weights == [2.0, 0.5]
    models = (None, EMBEDDED_VL, "m")
    assert [TrainerConfig(model=model).embedded for model in models] == [True, True, False]


def test_of_many_divisors_those_nearest_to_the_wish_are_listed() -> None:
    arguments = ["--per_device_train_batch_size", "2520", "--num_generations", "50"]
    listed = message_of(*arguments, ranks=1).rpartition("here: ")[2]
    assert listed == "28, 30, 35, 36, 40, 42, 45, 56, 60, 63, 70, 72"


def test_how_large_a_batch_of_one_has_to_be_for_a_group_is_said() -> None:
    message = message_of("--per_device_train_batch_size", "1", "--num_generations", "4", ranks=1)
    assert message.endswith("raise --per_device_train_batch_size to 4 or a multiple of it")
