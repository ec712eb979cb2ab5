"""What helps against a shortage of memory, phase by phase: only what is not set already."""

from __future__ import annotations

import pytest

from grpo_doctor_trainer.flags import parse
from grpo_doctor_trainer.memory.advice import advice

SMALL = ("--per_device_train_batch_size", "16", "--num_generations", "4")
ZERO2, ZERO3 = "--deepspeed zero2", "--deepspeed zero3"
OFFLOAD, HALF = "--deepspeed zero3_offload", "--torch_dtype bfloat16"
AWAY = ["--offload_optimizer true", "--offload_model true"]
PASSES = "--per_device_train_batch_size 8 --gradient_accumulation_steps 2"
NOTHING = "a smaller --model, or more ranks"


def options(where: str, flags: str = "") -> list[str]:
    """The options that are advised, without why."""
    return [line.partition(":")[0] for line in advice(where, parse([*SMALL, *flags.split()], 2))]


@pytest.mark.parametrize(
    ("flags", "advised"),
    [
        ("--deepspeed none", [ZERO2, ZERO3, OFFLOAD, HALF]),
        ("--deepspeed zero0", [ZERO2, ZERO3, OFFLOAD, HALF]),
        ("--deepspeed zero1", [ZERO2, ZERO3, OFFLOAD, HALF]),
        ("--deepspeed zero2", [ZERO3, OFFLOAD, HALF]),
        ("--deepspeed zero2_offload", [ZERO3, HALF]),
        ("--deepspeed zero3", [OFFLOAD, HALF]),
        ("--deepspeed zero3_offload", [HALF]),
        ("--deepspeed zero3 --torch_dtype bfloat16", [OFFLOAD]),
        ("--deepspeed zero3 --torch_dtype float16", [OFFLOAD]),
        ("--deepspeed zero3_offload --torch_dtype bfloat16", [NOTHING]),
    ],
)
def test_weights_are_cut_moved_or_halved_further_than_they_are(
    flags: str, advised: list[str]
) -> None:
    assert options("init", flags) == options("a phase of its own", flags) == advised
    lora = [] if advised == [NOTHING] else advised
    assert options("optimizer", flags) == [*lora, "--train_type lora"]
    assert options("optimizer", f"{flags} --train_type lora") == advised


@pytest.mark.parametrize(
    ("flags", "advised"),
    [
        ("--beta 0.1", [PASSES, "--beta 0"]),
        ("--beta 0", [PASSES]),
        ("--beta 0.1 --train_type lora", [PASSES]),
        ("--beta 0 --per_device_train_batch_size 1 --num_generations 2", [NOTHING]),
        ("--beta 0 --per_device_train_batch_size 3 --num_generations 2",
         ["--per_device_train_batch_size 1 --gradient_accumulation_steps 2"]),
    ],
)  # fmt: skip
def test_passes_can_be_smaller_and_a_reference_can_go(flags: str, advised: list[str]) -> None:
    assert options("logprob", flags) == advised


def test_training_takes_smaller_passes_recomputes_or_answers_shortly() -> None:
    length = "--max_completion_length below 8"
    assert options("train", "--max_completion_length 8 --deepspeed zero2") == [
        PASSES, "--gradient_checkpointing true", length, ZERO3,
    ]  # fmt: skip
    flags = "--max_completion_length 8 --gradient_checkpointing true --deepspeed zero1"
    assert options("train", flags) == [PASSES, length, ZERO2]


@pytest.mark.parametrize(
    ("flags", "advised"),
    [
        ("", AWAY),
        ("--offload_model true", AWAY[:1]),
        ("--offload_optimizer true", AWAY[1:]),
        ("--offload_model true --offload_optimizer true", [NOTHING]),
    ],
)
def test_what_a_rollout_does_not_need_can_go_where_it_has_not_gone(
    flags: str, advised: list[str]
) -> None:
    server = f"--use_vllm true --vllm_mode server {flags}"
    assert options("rollout", server) == options("eval", server) == advised
    colocated = f"--use_vllm true --vllm_mode colocate {flags}"
    away = [] if advised == [NOTHING] else advised
    share, cache, *more = options("rollout", colocated)
    assert share.startswith("--vllm_gpu_memory_utilization below 0.02, if training holds")
    assert cache == "--vllm_max_num_seqs or --vllm_max_model_len lower"
    assert more == away
    assert options("sync", colocated) == [
        "--move_model_batches above 1", "--vllm_gpu_memory_utilization below 0.02", *away,
    ]  # fmt: skip
    fewer, shorter, *more = options("rollout", f"{flags} --max_completion_length 8")
    assert (fewer, shorter) == ("fewer completions at once", "--max_completion_length below 8")
    assert more == away


def test_as_many_batches_of_weights_as_there_are_is_where_more_begins() -> None:
    flags = "--use_vllm true --move_model_batches 3"
    assert options("sync", flags)[0] == "--move_model_batches above 3"


@pytest.mark.parametrize(
    ("flags", "advised"),
    [
        ("", ["--gc_collect_after_offload true"]),
        ("--gc_collect_after_offload true", []),
        ("--use_vllm true --sleep_level 0 --gc_collect_after_offload true", ["--sleep_level 1"]),
        ("--use_vllm true --sleep_level 1", ["--sleep_level 2", "--gc_collect_after_offload true"]),
        ("--use_vllm true --sleep_level 2 --gc_collect_after_offload true", []),
    ],
)
def test_an_engine_sleeps_deeper_and_freed_memory_is_handed_back(
    flags: str, advised: list[str]
) -> None:
    *first, last = options("offload", flags)
    assert first == advised
    assert last.startswith("no --offload_model or --offload_optimizer")


def test_on_the_host_it_is_the_workers() -> None:
    flags = "--dataloader_num_workers 3 --dataloader_prefetch_factor 5 --reward_num_workers 7"
    assert options("dataload", flags) == options("reward", flags) == [
        "--dataloader_num_workers below 3 or --dataloader_prefetch_factor below 5",
        "--reward_num_workers below 7",
    ]  # fmt: skip


def test_a_checkpoint_can_be_of_weights_alone() -> None:
    assert options("checkpoint") == ["--save_only_model true"]
    assert options("checkpoint", "--save_only_model true") == [NOTHING]
