"""Checks before anything is loaded: each message names the flag and a way out."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor_trainer.config import EMBEDDED_VL, TrainerConfig


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
