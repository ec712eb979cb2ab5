"""Checks of the options against each other and the number of ranks, before anything is loaded."""

from __future__ import annotations

import math
from math import gcd
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_doctor_trainer.errors import ConfigError
from grpo_doctor_trainer.logs.tracker_options import check_trackers
from grpo_doctor_trainer.model.vision_options import check_vision_options
from grpo_doctor_trainer.rewards.options import check_rewards
from grpo_doctor_trainer.rollout.vllm.options import check_colocated_options
from grpo_doctor_trainer.rollout.vllm.server_options import check_server_options

if TYPE_CHECKING:
    from grpo_doctor_trainer.config import TrainerConfig

DEEPSPEED_PRESETS = ("zero0", "zero1", "zero2", "zero3", "zero2_offload", "zero3_offload")
_AT_LEAST_ONE = (  # where they are given
    "lora_rank",
    "lora_alpha",
    "max_length",
    "max_completion_length",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "num_iterations",
    "logging_steps",
    "dataloader_prefetch_factor",
    "ddp_timeout",
    "vllm_tensor_parallel_size",
    "vllm_max_lora_rank",
    "max_pixels",
    "vllm_max_model_len",
    "vllm_max_num_seqs",
    "move_model_batches",
    "save_total_limit",
)
_ABOVE_ZERO = (
    "repetition_penalty",
    "vllm_server_timeout",
    "vllm_timeout",
    "rollout_importance_sampling_threshold",
    "epsilon",
    "epsilon_high",
    "num_train_epochs",
)
_NOT_NEGATIVE = (
    "dataloader_num_workers",
    "beta",
    "learning_rate",
    "weight_decay",
    "max_grad_norm",
    "warmup_steps",
    "save_steps",
    "reward_timeout",
    "reward_num_workers",
)


_WIDTH_STEP = 64  # four heads, each with a turn for an image's time, height and width
_MOST_SHOWN = 12
_LARGEST_SEED = 2**32 - 1  # NumPy's; torch's is larger, and each rank adds its number


def validate(config: TrainerConfig, world_size: int) -> None:
    """Raises `ConfigError` for the first value that cannot work with the others."""
    _check_ranges(config)
    _check_batch(config, world_size)
    _check_deepspeed(config)
    check_rewards(config)
    check_vision_options(config)
    check_colocated_options(config, world_size)
    check_server_options(config)
    check_trackers(config)
    if config.rollout_importance_sampling_mode is not None and not config.use_vllm:
        raise ConfigError(
            "--rollout_importance_sampling_mode corrects for vLLM's log-probs: add "
            "--use_vllm true, or leave it out"
        )


def _check_ranges(config: TrainerConfig) -> None:
    for name in (*_AT_LEAST_ONE, *_ABOVE_ZERO, *_NOT_NEGATIVE):
        value = getattr(config, name)
        if value is not None and (demand := _demand(name, value)):
            raise ConfigError(f"--{name} {value} must be {demand}")
    if config.num_generations < 2:
        raise ConfigError(
            f"--num_generations {config.num_generations} gives no group to compare with; "
            "use 2 or more"
        )
    if config.embedded_width < 1 or config.embedded_width % _WIDTH_STEP:
        raise ConfigError(
            f"--embedded_width {config.embedded_width} must be a multiple of {_WIDTH_STEP}"
        )
    if not 0 <= config.seed <= _LARGEST_SEED:
        raise ConfigError(f"--seed {config.seed} must be between 0 and {_LARGEST_SEED}")
    _check_sampling(config)
    if not 0 <= config.warmup_ratio <= 1:
        raise ConfigError(f"--warmup_ratio {config.warmup_ratio} must be between 0 and 1")
    if config.max_steps == 0 or config.max_steps < -1:
        raise ConfigError(
            f"--max_steps {config.max_steps} must be at least 1, or -1 to use --num_train_epochs"
        )


def _demand(name: str, value: float) -> str | None:
    if name in _AT_LEAST_ONE:
        return None if value >= 1 else "at least 1"
    if name in _ABOVE_ZERO:
        return None if value > 0 else "above 0"
    return None if value >= 0 else "0 or more"


def _check_sampling(config: TrainerConfig) -> None:
    if config.temperature <= 0:
        raise ConfigError(
            f"--temperature {config.temperature} makes all completions of a group equal; "
            "use a value above 0, such as 1.0"
        )
    if not 0 < config.top_p <= 1:
        raise ConfigError(f"--top_p {config.top_p} must be above 0 and at most 1")
    if config.top_k == 0 or config.top_k < -1:
        raise ConfigError(f"--top_k {config.top_k} must be at least 1, or -1 for all tokens")


def _check_batch(config: TrainerConfig, world_size: int) -> None:
    accumulation, passes = config.gradient_accumulation_steps, config.passes_per_generation
    if passes < 1 or passes % accumulation:
        raise ConfigError(
            f"--steps_per_generation {passes} must be a multiple of --gradient_accumulation_steps "
            f"{accumulation}; valid values here: {accumulation}, {2 * accumulation}, "
            f"{3 * accumulation}, ..."
        )
    batch = world_size * config.completions_per_rank
    if batch % config.num_generations:
        valid = _near(config.num_generations, batch)
        fitting = config.num_generations // gcd(config.num_generations, world_size * passes)
        advice = (
            f"valid values here: {', '.join(map(str, valid))}"
            if valid
            else f"raise --per_device_train_batch_size to {fitting} or a multiple of it"
        )
        raise ConfigError(
            f"--num_generations {config.num_generations} must divide the generation batch of "
            f"{batch} (= {world_size} rank{'s' * (world_size > 1)} x --per_device_train_batch_size "
            f"{config.per_device_train_batch_size} x --steps_per_generation {passes}); {advice}"
        )


def _near(wish: int, batch: int) -> list[int]:
    """Gives the divisors of the batch above 1 that are nearest to what was asked for."""
    small = [n for n in range(1, math.isqrt(batch) + 1) if batch % n == 0]
    divisors = {n for one in small for n in (one, batch // one)} - {1}
    return sorted(sorted(divisors, key=lambda n: abs(n - wish))[:_MOST_SHOWN])


def _check_deepspeed(config: TrainerConfig) -> None:
    choice = config.deepspeed
    if choice is None or choice in DEEPSPEED_PRESETS:
        if choice is None and config.torch_dtype == "float16":
            raise ConfigError(
                "--torch_dtype float16 needs loss scaling, which only DeepSpeed does here: "
                "add --deepspeed zero2, or use --torch_dtype bfloat16"
            )
        return
    if not choice.endswith(".json"):
        raise ConfigError(
            f"--deepspeed {choice} is neither one of {', '.join(DEEPSPEED_PRESETS)} "
            "nor a .json file"
        )
    if not Path(choice).is_file():
        raise ConfigError(f"--deepspeed {choice}: there is no such file")
