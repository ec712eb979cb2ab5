"""Every flag of the matrix with the values that are run, and the cells where it means something."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.matrix.cells import TRAIN_TYPES, Cell

NEEDS_GPU = "it has no effect without a GPU"


def everywhere(_cell: Cell) -> bool:
    return True


def nowhere(_cell: Cell) -> bool:
    return False


def slept_on_a_gpu(cell: Cell) -> bool:
    return (cell.rollout, cell.engine, cell.train_type, cell.inputs) == (
        "colocate", "zero2", "lora", "text",
    )  # fmt: skip


def with_vllm(cell: Cell) -> bool:
    return cell.rollout != "transformers"


def colocated(cell: Cell) -> bool:
    return cell.rollout == "colocate"


def with_images(cell: Cell) -> bool:
    return cell.inputs == "vl"


@dataclass(frozen=True)
class Flag:
    """A flag of the trainer.

    Attributes:
        name: without the dashes.
        values: run where `where` holds, as `runs` says; several words are several values.
        where: the cells in which the flag means something.
        not_run: why no cell without a GPU runs it; empty where they do.
        gpu_test: the cells in which a test in tests/gpu runs it.
    """

    name: str
    values: tuple[str, ...]
    where: Callable[[Cell], bool] = everywhere
    not_run: str = ""
    gpu_test: Callable[[Cell], bool] = nowhere


REWARDS = str(Path(__file__).with_name("rewards.py"))
# Run k has value k of each flag, from the start again where a flag has fewer.
FLAGS: tuple[Flag, ...] = (
    Flag("vllm_gpu_memory_utilization", ("0.02",), colocated),
    Flag("vllm_max_model_len", ("256",), colocated),
    Flag("vllm_enforce_eager", ("true",), colocated),
    Flag("vllm_enable_prefix_caching", ("false", "true"), colocated),
    Flag("vllm_max_num_seqs", ("8",), colocated),
    Flag("vllm_timeout", ("120",), with_vllm),
    Flag("sleep_level", ("1", "2"), colocated, NEEDS_GPU, slept_on_a_gpu),
    Flag("move_model_batches", ("2",), with_vllm),
    Flag("rollout_importance_sampling_mode", ("token_truncate", "sequence_mask"), with_vllm),
    Flag("offload_model", ("true", "false")),
    Flag("offload_optimizer", ("true", "false")),
    Flag("gc_collect_after_offload", ("true", "false")),
    Flag("num_iterations", ("1", "2")),
    Flag("gradient_accumulation_steps", ("2", "1")),
    Flag("steps_per_generation", ("4", "2")),
    Flag("beta", ("0.04", "0")),
    Flag("loss_type", ("dapo", "grpo", "bnpo", "dr_grpo")),
    Flag("epsilon", ("0.1", "0.2")),
    Flag("epsilon_high", ("0.28", "none")),
    Flag("share_prompts", ("true", "false")),
    Flag("scale_rewards", ("group", "batch", "none")),
    Flag("mask_truncated_completions", ("false", "true")),
    Flag("temperature", ("0.9", "1.0")),
    Flag("top_p", ("0.95", "1.0")),
    Flag("top_k", ("50", "-1")),
    Flag("repetition_penalty", ("1.05", "1.0")),
    Flag(
        "reward_funcs",
        (f"accuracy format {REWARDS}:digits", f"format {REWARDS}:brevity {REWARDS}:digits"),
    ),
    Flag("reward_weights", ("1 0.5 0.1", "0.5 1 0.1")),
    Flag("reward_timeout", ("30",)),
    # The first run has `accuracy`, whose parser each process would import again.
    Flag("reward_num_workers", ("0", "2")),
    Flag("freeze_vit", ("true", "false"), with_images),
    Flag("freeze_aligner", ("true", "false"), with_images),
    Flag("max_pixels", ("3136", "12544"), with_images),
    Flag("gradient_checkpointing", ("false", "true")),
    Flag("save_only_model", ("false", "true")),
    Flag("save_total_limit", ("1", "2")),
    Flag("resume_from_checkpoint", ("latest",)),
    Flag("log_completions", ("true", "false")),
)


RUNS = 2


def runs(cell: Cell) -> list[list[str]]:
    """The command lines of a cell, alike for every engine.

    LoRA has the first and second value of each flag, full training the third and fourth, or the
    first again where there are no more: together they have all.
    """
    flags = [flag for flag in FLAGS if flag.where(cell) and not flag.not_run]
    first = RUNS * TRAIN_TYPES.index(cell.train_type)
    return [
        [word for flag in flags for word in (f"--{flag.name}", *value_of(flag, number).split())]
        for number in range(first, first + RUNS)
    ]


def value_of(flag: Flag, number: int) -> str:
    return flag.values[number % len(flag.values)]


# Several rollouts with new weights in between, of completions of which some end by themselves.
SMALL = (
    "--max_steps", "5", "--save_steps", "2", "--per_device_train_batch_size", "8",
    "--num_generations", "4", "--max_completion_length", "24", "--seed", "7",
)  # fmt: skip
