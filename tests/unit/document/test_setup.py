"""What was trained and how it was spread, in words."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.document.facts import model_name, parallelism
from grpo_doctor.trace.model import Run


def run(**knobs: Any) -> Run:
    settings = {name.replace("__", "."): value for name, value in knobs.items()}
    return Run(id="r", framework="trl", world_size=8, knobs=settings, config={"said": "all"})


@pytest.mark.parametrize(("name", "shown"), [
    ("Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B"),
    ("/data/models/Qwen2.5-7B", "Qwen2.5-7B"),
    ("./tiny/", "tiny"),
    ("/tiny", "tiny"),
    ("./tiny", "tiny"),
    ("a/b/c", "c"),
    (None, ""),
])  # fmt: skip
def test_a_model_is_called_by_its_name(name: str | None, shown: str) -> None:
    assert model_name(run(model__name=name)) == shown


@pytest.mark.parametrize(
    ("knobs", "name"),
    [
        ({}, ""),
        ({"vllm__use": False}, "data parallel"),
        ({"deepspeed__preset": "zero3_offload", "train__type": "lora"}, "ZeRO-3, LoRA"),
        ({"deepspeed__stage": 2, "parallel__strategy": "deepspeed"}, "ZeRO-2"),
        ({"parallel__strategy": "fsdp2"}, "FSDP2"),
        ({"deepspeed__stage": 2, "parallel__strategy": "megatron"}, "ZeRO-2, megatron"),
        ({"parallel__strategy": "deepspeed"}, "deepspeed"),
        ({"train__lora_rank": 1}, "data parallel"),
        ({"train__type": "lora", "train__lora_rank": 1}, "data parallel, LoRA"),
        ({"train__type": "full", "train__lora_rank": 8}, "data parallel"),
        ({"vllm__use": False, "vllm__mode": "colocate"}, "data parallel"),
        (
            {"parallel__strategy": "megatron", "parallel__tensor": 2, "parallel__pipeline": 1,
             "vllm__use": True, "vllm__mode": "colocate", "vllm__tensor_parallel_size": 4},
            "megatron, tensor 2; vLLM colocate, tensor 4",
        ),
    ],
)  # fmt: skip
def test_how_it_was_spread_is_read_from_the_settings(knobs: dict[str, Any], name: str) -> None:
    assert parallelism(run(**knobs)) == name


@pytest.mark.parametrize(("framework", "knobs", "name"), [
    ("verl", {"train.lora_rank": 8}, "LoRA"),
    ("verl", {"train.lora_rank": 0}, ""),
    ("ms-swift", {"train.lora_rank": 8}, "LoRA"),
    ("ms-swift", {}, ""),
    ("trl", {"train.lora_rank": 8}, ""),
    ("openrlhf", {}, ""),
])  # fmt: skip
def test_a_default_alone_is_no_setup(framework: str, knobs: dict[str, Any], name: str) -> None:
    assert parallelism(Run(id="r", framework=framework, world_size=8, knobs=knobs)) == name


def test_one_rank_is_not_parallel() -> None:
    run = Run(id="r", framework="trl", world_size=1, knobs={"vllm.use": False})
    assert parallelism(run) == ""
