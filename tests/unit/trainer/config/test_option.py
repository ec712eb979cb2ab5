"""An option outside of its limits is named with its value and what is allowed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.config.option import check_limits
from grpo_doctor_trainer.errors import ConfigError


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("lora_rank", 0, "--lora_rank 0 must be at least 1"),
        ("beta", -0.1, "--beta -0.1 must be 0 or more"),
        ("epsilon_high", 0.0, "--epsilon_high 0.0 must be above 0"),
        ("top_p", 1.1, "--top_p 1.1 must be above 0 and at most 1"),
        ("warmup_ratio", 1.5, "--warmup_ratio 1.5 must be between 0 and 1"),
        ("top_k", -2, "--top_k -2 must be at least 1, or -1 for all tokens"),
        ("max_steps", 0, "--max_steps 0 must be at least 1, or -1 to use --num_train_epochs"),
        ("embedded_width", 100, "--embedded_width 100 must be a multiple of 64"),
        (
            "temperature",
            0.0,
            (
                "--temperature 0.0 must be above 0: at 0 all completions of a group are equal; "
                "try 1.0"
            ),
        ),
    ],
)
def test_what_is_allowed_is_said(option: str, value: Any, message: str) -> None:
    config = dataclasses.replace(TrainerConfig(), **{option: value})
    with pytest.raises(ConfigError) as error:
        check_limits(config)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("mode", "option", "value", "message"),
    [
        ("server", "vllm_server_port", 0, "--vllm_server_port 0 must be between 1 and 65535"),
        ("colocate", "sleep_level", 3, "--sleep_level 3 must be between 0 and 2"),
        (
            "colocate",
            "vllm_gpu_memory_utilization",
            0.0,
            (
                "--vllm_gpu_memory_utilization 0.0 must be above 0 and at most 1: it is a share of "
                "the memory, such as 0.5"
            ),
        ),
    ],
)
def test_limits_of_vllm_matter_where_its_options_do(
    mode: str, option: str, value: Any, message: str
) -> None:
    values: dict[str, Any] = {"vllm_mode": mode, option: value}
    check_limits(dataclasses.replace(TrainerConfig(), **values))
    with pytest.raises(ConfigError) as error:
        check_limits(dataclasses.replace(TrainerConfig(), use_vllm=True, **values))
    assert str(error.value) == message


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"top_k": -1, "max_steps": -1, "epsilon_high": None, "save_total_limit": None},
        {"top_p": 1.0, "warmup_ratio": 0.0, "seed": 2**32 - 1, "sleep_level": 2},
        {"embedded_width": 192, "beta": 0.0, "num_generations": 2},
    ],
)
def test_values_at_their_limits_are_allowed(values: dict[str, Any]) -> None:
    check_limits(dataclasses.replace(TrainerConfig(), **values))
