"""An option outside of its limits is named with its value and what is allowed."""

from __future__ import annotations

import pytest

from grpo_doctor_trainer.errors import ConfigError
from grpo_doctor_trainer.flags import parse


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("lora_rank", "0", "expected int >= 1, got '0'"),
        ("max_completion_length", "0", "expected int >= 1, got '0'"),
        ("per_device_train_batch_size", "0", "expected int >= 1, got '0'"),
        ("num_iterations", "0", "expected int >= 1, got '0'"),
        ("save_total_limit", "0", "expected int >= 1, got '0'"),
        ("gradient_accumulation_steps", "-1", "expected int >= 1, got '-1'"),
        ("num_generations", "1", "got '1': a single completion has no group to compare with"),
        ("save_steps", "-1", "expected int >= 0, got '-1'"),
        ("learning_rate", "-1", "expected float >= 0.0, got '-1'"),
        ("top_p", "0", "expected float > 0.0, got '0'"),
        ("epsilon", "0", "expected float > 0.0, got '0'"),
        ("num_train_epochs", "0", "expected float > 0.0, got '0'"),
        ("warmup_ratio", "1.5", "expected float <= 1.0, got '1.5'"),
        ("reward_weights", "inf", "expected a finite number, got 'inf'"),
        ("beta", "-0.1", "expected float >= 0.0, got '-0.1'"),
        ("epsilon_high", "0.0", "expected float > 0.0, got '0.0'"),
        ("top_p", "1.1", "expected float <= 1.0, got '1.1'"),
        ("top_k", "-2", "expected int >= -1, got '-2'"),
        ("max_steps", "ten", "expected int, got 'ten'"),
        ("seed", "4294967296", "expected int <= 4294967295, got '4294967296'"),
        ("embedded_width", "100", "expected int that's a multiple of 64, got '100'"),
        ("embedded_width", "0", "expected int >= 1, got '0'"),
        ("beta", "small", "expected float, got 'small'"),
        ("learning_rate", "inf", "expected a finite number, got 'inf'"),
        ("beta", "nan", "expected float >= 0.0, got 'nan'"),
        ("loss_type", "dr-grpo", "got 'dr-grpo'; did you mean dr_grpo?"),
        ("train_type", "qlora", "expected one of lora, full, got 'qlora'; did you mean lora?"),
        ("offload_model", "maybe", "expected true or false, got 'maybe'"),
        ("vllm_server_port", "0", "expected int >= 1, got '0'"),
        ("sleep_level", "3", "expected int <= 2, got '3'"),
        (
            "temperature", "0",
            "expected float > 0.0, got '0': at 0 all completions of a group are equal; try 1.0",
        ),
    ],
)  # fmt: skip
def test_what_is_allowed_is_said(option: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse([f"--{option}", value], 2)
    assert str(error.value).startswith(f"--{option}: ")
    assert str(error.value).endswith(message)


@pytest.mark.parametrize(
    ("flags", "option", "value"),
    [
        ("--top_k -1", "top_k", -1),
        ("--max_steps 0", "max_steps", 0),
        ("--epsilon_high none", "epsilon_high", None),
        ("--save_total_limit None", "save_total_limit", None),
        ("--top_p 1", "top_p", 1.0),
        ("--warmup_ratio 0", "warmup_ratio", 0.0),
        ("--seed 4294967295", "seed", 2**32 - 1),
        ("--embedded_width 192", "embedded_width", 192),
        ("--num_generations 2", "num_generations", 2),
        ("--scale_rewards none", "scale_rewards", "none"),
    ],
)
def test_values_at_their_limits_are_allowed(flags: str, option: str, value: object) -> None:
    assert getattr(parse(flags.split(), 2), option) == value
