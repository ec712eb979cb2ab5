"""Options that were given and do nothing are named, with what they need."""

from __future__ import annotations

from pathlib import Path

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


COLOCATED = ["--use_vllm", "true", "--vllm_mode", "colocate"]


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        (["--use_vllm", "true", "--vllm_mode", "server", "--vllm_max_num_seqs", "7"],
         ["--vllm_max_num_seqs: no effect without --vllm_mode colocate"]),
        ([*COLOCATED, "--vllm_max_num_seqs", "7"], []),
        (["--vllm_max_num_seqs", "7", "--lora_alpha", "3"],
         ["--vllm_max_num_seqs: no effect without --use_vllm true",
          "--lora_alpha: no effect without --train_type lora"]),
        (["--lora_rank", "4", "--lora_alpha", "3"],
         ["--lora_rank, --lora_alpha: no effect without --train_type lora"]),
        (["--val_dataset", "a.jsonl"], ["--val_dataset: no effect without --eval_steps"]),
        (["--val_dataset", "a.jsonl", "--eval_steps", "3"], []),
        (["--deepspeed", "zero2", "--ds3_gather_for_generation", "false"],
         ["--ds3_gather_for_generation: no effect without ZeRO-3 without vLLM"]),
        ([*COLOCATED, "--deepspeed", "zero3", "--ds3_gather_for_generation", "false"],
         ["--ds3_gather_for_generation: no effect without ZeRO-3 without vLLM"]),
        (["--deepspeed", "none", "--ds3_gather_for_generation", "false"], []),
        (["--embedded_width", "256"], []),
    ],
)  # fmt: skip
def test_each_option_is_named_with_what_it_needs(flags: list[str], options: list[str]) -> None:
    assert list(ignored(parse(flags, 2), takes_images=False)) == options


def test_a_file_of_deepspeed_may_be_of_zero3(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text("{}", encoding="utf-8")
    flags = ["--deepspeed", str(tmp_path / "mine.json"), "--ds3_gather_for_generation", "false"]
    assert not list(ignored(parse(flags, 2), takes_images=False))


def test_options_for_images_do_something_where_the_model_takes_some() -> None:
    config = parse(["--max_pixels", "99", "--freeze_vit", "false"], 2)
    assert not list(ignored(config, takes_images=True))
