from __future__ import annotations

import dataclasses
import shlex
from typing import Any

import pytest

from grpo_doctor import knobs
from grpo_doctor.knobs.model import version_of
from grpo_doctor.knobs.syntax import options_of
from grpo_doctor.knobs.tables import BY_NAME
from grpo_doctor_trainer.config import TrainerConfig

SWIFT = "ms-swift"


def test_every_bundled_spelling_is_an_option_of_the_trainer() -> None:
    options = {option.name: option for option in dataclasses.fields(TrainerConfig)}
    for spelling in knobs.FRAMEWORKS["bundled"]:
        assert spelling.key in options
        if spelling.knob not in ("rollout.importance_correction", "reward.weights"):  # none: off
            assert spelling.default == options[spelling.key].default, spelling.key


def test_every_spelling_names_a_knob_and_no_version_has_two_names_for_it() -> None:
    for framework, spellings in knobs.FRAMEWORKS.items():
        for spelling in spellings:
            assert spelling.knob in BY_NAME, framework
            begins = version_of(spelling.since)
            assert begins is not None
            covering = [s for s in spellings if s.knob == spelling.knob and s.covers(begins)]
            assert covering == [spelling]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3.12.0", (3, 12, 0)),
        ("4.6.0.dev0", (4, 6, 0)),
        ("v4.1", (4, 1, 0)),
        ("4.0rc1", (4, 0, 0)),
        ("main", None),
        ("", None),
        (None, None),
    ],
)
def test_versions(text: str | None, expected: tuple[int, ...] | None) -> None:
    assert version_of(text) == expected


@pytest.mark.parametrize(
    ("version", "knob", "value", "expected"),
    [
        ("3.9.0", "train.type", "full", "--train_type full"),
        ("4.0.0", "train.type", "full", "--tuner_type full"),
        ("4.6.0", "train.type", "full", "--tuner_type full"),
        (None, "train.type", "full", None),  # either name is refused by some version
        ("3.9.0", "offload.gc_collect", False, "--gc_collect_after_offload false"),
        ("3.10.0", "offload.gc_collect", False, None),
        ("3.2.0", "offload.model", False, None),
        ("4.6.0", "offload.optimizer", False, "--offload_optimizer false"),
        (None, "offload.optimizer", False, "--offload_optimizer false"),
        ("3.4.0", "vllm.tensor_parallel_size", 2, "--tensor_parallel_size 2"),
        ("3.5.0", "vllm.tensor_parallel_size", 2, "--vllm_tensor_parallel_size 2"),
        ("4.6.0", "vllm.gpu_memory_utilization", 0.55, "--vllm_gpu_memory_utilization 0.55"),
        ("4.6.0", "deepspeed.stage", 2, None),  # read from the preset, no flag of its own
    ],
)  # fmt: skip
def test_ms_swift_flags_by_version(
    version: str | None, knob: str, value: Any, expected: str | None
) -> None:
    assert knobs.spell(SWIFT, version, knob, value) == expected


def test_an_unknown_framework_has_no_spellings() -> None:
    assert knobs.spell("mine", "1.0", "vllm.use", True) is None
    assert knobs.default("mine", "1.0", "vllm.use") is None
    assert knobs.canonical("mine", "1.0", {"use_vllm": True}) == {}


def test_defaults_follow_the_version() -> None:
    assert knobs.default(SWIFT, "3.4.0", "vllm.mode") is None
    assert knobs.default(SWIFT, "3.5.0", "vllm.mode") == "colocate"
    assert knobs.default(SWIFT, "4.0.0", "vllm.mode") is None
    assert knobs.default(SWIFT, "3.4.0", "run.collective_timeout_s") == 1800
    assert knobs.default(SWIFT, None, "run.collective_timeout_s") == 18_000_000


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


def test_options_of_a_command_line() -> None:
    assert options_of(["x", "--a", "1", "--b", "--c-d", "e", "f", "--g=h=i"]) == {
        "a": "1",
        "b": True,
        "c_d": ["e", "f"],
        "g": "h=i",
    }


def test_two_dashes_alone_are_no_option() -> None:
    assert options_of(["x", "--", "--a", "1"]) == {"a": "1"}
    assert options_of(["--a", "1", "--"]) == {"a": ["1", "--"]}


def test_unset_and_unreadable_values_are_absent() -> None:
    config = {
        "use_vllm": None,
        "offload_model": "none",
        "num_generations": "many",
        "max_completion_length": 0.5,
        "vllm_gpu_memory_utilization": float("nan"),
        "save_steps": float("inf"),
    }
    assert knobs.canonical(SWIFT, "4.6.0", config) == {}


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


@pytest.mark.parametrize("zero", [{"stage": "auto"}, {}, 3, None])
def test_a_deepspeed_configuration_that_states_no_stage_says_nothing(zero: Any) -> None:
    assert knobs.canonical(SWIFT, "4.6.0", {"deepspeed": {"zero_optimization": zero}}) == {}


def test_only_frameworks_that_take_a_deepspeed_setting_have_one() -> None:
    assert knobs.canonical("verl", None, {"deepspeed": "zero3"}) == {}


def test_a_deepspeed_file_is_kept_as_it_is() -> None:
    assert knobs.canonical(SWIFT, "4.6.0", {"deepspeed": "ds.json"}) == {
        "deepspeed.preset": "ds.json"
    }
