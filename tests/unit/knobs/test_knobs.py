from __future__ import annotations

import dataclasses
import shlex
from typing import Any

import pytest

from grpo_doctor import knobs
from grpo_doctor.knobs.model import version_of
from grpo_doctor_trainer.config import TrainerConfig

SWIFT = "ms-swift"


def test_every_bundled_spelling_is_an_option_of_the_trainer() -> None:
    options = {option.name: option for option in dataclasses.fields(TrainerConfig)}
    for spelling in knobs.FRAMEWORKS["bundled"]:
        assert spelling.key in options
        if spelling.knob not in ("rollout.importance_correction", "reward.weights"):  # none: off
            assert spelling.default == options[spelling.key].default, spelling.key


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3.12.0", (3, 12, 0)), ("4.6.0.dev0", (4, 6, 0)), ("v4.1", (4, 1, 0)),
        ("4.0rc1", (4, 0, 0)), ("main", None), ("", None), (None, None),
    ],
)  # fmt: skip
def test_versions(text: str | None, expected: tuple[int, ...] | None) -> None:
    assert version_of(text) == expected


def test_an_unknown_framework_has_no_spellings() -> None:
    assert knobs.spell("mine", "1.0", "vllm.use", True) is None
    assert knobs.default("mine", "1.0", "vllm.use") is None
    assert knobs.canonical("mine", "1.0", {"use_vllm": True}) == {}


def test_a_command_line_as_knobs() -> None:
    line = (
        "swift rlhf --rlhf_type grpo --use_vllm true --vllm_gpu_memory_utilization=0.6 "
        "--reward_funcs accuracy format --train_type lora --save_steps 1e2 --padding_free"
    )
    assert knobs.from_command(SWIFT, "3.9.0", shlex.split(line)) == {
        "vllm.use": True,
        "vllm.gpu_memory_utilization": 0.6,
        "train.type": "lora",
        "train.padding_free": True,
        "checkpoint.save_steps": 100,
    }


@pytest.mark.parametrize(
    ("value", "stage", "optimizer", "param"),
    [
        ("zero2", 2, False, False),
        ("zero2_offload", 2, True, False),
        ("zero3_offload", 3, True, True),
        ({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}, 3, True,
         False),
    ],
)  # fmt: skip
def test_what_a_deepspeed_setting_says(
    value: Any, stage: int, optimizer: bool, param: bool
) -> None:
    values = knobs.canonical(SWIFT, "4.6.0", {"deepspeed": value})
    assert values.pop("deepspeed.preset", value) == value
    assert values == {
        "deepspeed.stage": stage,
        "deepspeed.offload_optimizer": optimizer,
        "deepspeed.offload_param": param,
    }


@pytest.mark.parametrize(
    ("framework", "config", "expected"),
    [
        # no stage, no setting of that name, a file, values that are unset or cannot be read
        *((SWIFT, {"deepspeed": {"zero_optimization": zero}}, {})
          for zero in ({"stage": "auto"}, {}, 3, None)),
        ("verl", {"deepspeed": "zero3"}, {}),
        (SWIFT, {"deepspeed": "ds.json"}, {"deepspeed.preset": "ds.json"}),
        *((SWIFT, {name: value}, {}) for name, value in (
            ("use_vllm", None), ("offload_model", "none"), ("num_generations", "many"),
            ("max_completion_length", 0.5), ("vllm_gpu_memory_utilization", float("nan")),
            ("save_steps", float("inf")))),
    ],
)  # fmt: skip
def test_only_what_a_configuration_says_is_read(
    framework: str, config: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert knobs.canonical(framework, "4.6.0", config) == expected
