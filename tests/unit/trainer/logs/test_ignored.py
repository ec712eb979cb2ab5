"""Options that were given and do nothing are named, with what they need."""

from __future__ import annotations

import pytest

from grpo_doctor_trainer.flags import parse
from grpo_doctor_trainer.logs.introduction import ignored


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--sleep_level", "1"], "--sleep_level: no effect without --use_vllm true"),
        (["--vllm_mode", "server"], "--vllm_mode: no effect without --use_vllm true"),
        (["--lora_rank", "4"], "--lora_rank: no effect without --train_type lora"),
        (
            ["--model", "m", "--num_generations", "2", "--embedded_width", "256"],
            "--embedded_width: no effect without an embedded model",
        ),
        (["--max_pixels", "99"], "--max_pixels: no effect without a vision-language model"),
        (
            ["--ds3_gather_for_generation", "false"],
            "--ds3_gather_for_generation: no effect without ZeRO-3 without vLLM",
        ),
    ],
)
def test_what_does_nothing_is_named(flags: list[str], line: str) -> None:
    assert list(ignored(parse(flags, 2), takes_images=False)) == [line]


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--use_vllm", "true", "--vllm_gpu_memory_utilization", "0.5"],
        ["--train_type", "lora", "--lora_rank", "4"],
        ["--deepspeed", "zero3", "--ds3_gather_for_generation", "false"],
    ],
)
def test_what_does_something_is_not(flags: list[str]) -> None:
    assert not list(ignored(parse(flags, 2), takes_images=False))
