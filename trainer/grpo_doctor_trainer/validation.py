"""Checks of the options against each other and the number of ranks, before anything is loaded."""

from __future__ import annotations

import math
import os
from importlib.util import find_spec
from pathlib import Path

from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.errors import ConfigError

DEEPSPEED_PRESETS = ("zero0", "zero1", "zero2", "zero3", "zero2_offload", "zero3_offload")
"""The values of `--deepspeed` that are not files."""
# vLLM compiles its adapter kernels for these ranks alone (vllm.config.lora, 0.32).
VLLM_LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What an engine can take as its largest rank of adapters."""
NOTHING_TO_TRAIN = (
    "--freeze_vit, --freeze_aligner and --freeze_llm together leave no weight to train; "
    "set one of them to false"
)
TRACKERS = ("tensorboard", "wandb", "swanlab")


_PIXELS_VARIABLE = "MAX_PIXELS"
_MOST_SHOWN = 12


def validate(config: TrainerConfig, world_size: int) -> None:
    """Hold the trainer's options against each other; imports no torch."""
    _check_batch(config, world_size)
    _check_deepspeed(config.deepspeed)
    _check_rewards(config)
    if config.freeze_vit and config.freeze_aligner and config.freeze_llm:
        raise ConfigError(NOTHING_TO_TRAIN)
    pixel_limit(config)
    if config.colocated:
        _check_colocated(config, world_size)
    if config.served and (config.vllm_enable_lora or config.sleep_level):
        raise ConfigError(
            "--vllm_enable_lora and --sleep_level work with --vllm_mode colocate only: a server "
            "has devices of its own and gets the adapters merged. Leave them out"
        )
    _check_trackers(config.report_to)
    if config.rollout_importance_sampling_mode is not None and not config.use_vllm:
        raise ConfigError(
            "--rollout_importance_sampling_mode corrects for vLLM's log-probs: add "
            "--use_vllm true, or leave it out"
        )


def pixel_limit(config: TrainerConfig) -> int | None:
    """Resolve `--max_pixels`, which wins over the variable MAX_PIXELS."""
    name, value = "--max_pixels", str(config.max_pixels)
    if config.max_pixels is None:
        name, value = f"the variable {_PIXELS_VARIABLE}", os.environ.get(_PIXELS_VARIABLE, "")
        if not value:
            return None
    if not value.isdecimal() or int(value) < 1:
        raise ConfigError(f"{name} {value} must be a whole number of pixels above 0, as 1003520")
    return int(value)


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
        valid = _nearest_divisors(config.num_generations, batch)
        fitting = config.num_generations // math.gcd(config.num_generations, world_size * passes)
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


def _nearest_divisors(target: int, batch: int) -> list[int]:
    """Return the divisors of the batch above 1 that are nearest to what was asked for."""
    small = [n for n in range(1, math.isqrt(batch) + 1) if batch % n == 0]
    divisors = {n for divisor in small for n in (divisor, batch // divisor)} - {1}
    return sorted(sorted(divisors, key=lambda n: abs(n - target))[:_MOST_SHOWN])


def _check_deepspeed(choice: str | None) -> None:
    if choice is None or choice in DEEPSPEED_PRESETS:
        return
    presets = ", ".join(DEEPSPEED_PRESETS)
    if not choice.endswith(".json"):
        raise ConfigError(f"--deepspeed {choice} is neither one of {presets} nor a .json file")
    if not Path(choice).is_file():
        raise ConfigError(f"--deepspeed {choice}: there is no such file")


def _check_rewards(config: TrainerConfig) -> None:
    if config.reward_timeout >= config.ddp_timeout:
        raise ConfigError(
            f"--reward_timeout {config.reward_timeout:g} must be below --ddp_timeout "
            f"{config.ddp_timeout}: the other ranks wait for the rewards no longer than that, and "
            "would fail first"
        )
    if config.reward_weights and len(config.reward_weights) != len(config.reward_funcs):
        raise ConfigError(
            f"--reward_weights has {len(config.reward_weights)} values for "
            f"{len(config.reward_funcs)} reward functions ({', '.join(config.reward_funcs)}); "
            "give one weight per function, or leave --reward_weights out"
        )


def _check_colocated(config: TrainerConfig, world_size: int) -> None:
    size = config.vllm_tensor_parallel_size
    if world_size % size:
        valid = [n for n in range(1, world_size + 1) if world_size % n == 0]
        raise ConfigError(
            f"--vllm_tensor_parallel_size {size} must divide the {world_size} "
            f"rank{'s' * (world_size > 1)}: each engine spans that many; valid values here: "
            f"{', '.join(map(str, valid))}"
        )
    longest = config.vllm_max_model_len
    if longest is not None and longest <= config.max_completion_length:
        raise ConfigError(
            f"--vllm_max_model_len {longest} leaves no room for a prompt before "
            f"--max_completion_length {config.max_completion_length} tokens; raise it to "
            f"{config.max_length + config.max_completion_length} (--max_length + "
            "--max_completion_length), or shorten the completions"
        )
    if config.vllm_enable_lora:
        _check_adapters(config)


def _check_adapters(config: TrainerConfig) -> None:
    if config.train_type != "lora":
        raise ConfigError(
            f"--vllm_enable_lora sends the engine adapters, and --train_type {config.train_type} "
            "has none; use --train_type lora, or leave --vllm_enable_lora out"
        )
    if config.lora_rank > config.vllm_max_lora_rank:
        raise ConfigError(
            f"--lora_rank {config.lora_rank} is above --vllm_max_lora_rank "
            f"{config.vllm_max_lora_rank}; raise --vllm_max_lora_rank to {config.lora_rank}"
        )
    if config.vllm_max_lora_rank > VLLM_LORA_RANKS[-1]:
        raise ConfigError(
            f"--vllm_max_lora_rank {config.vllm_max_lora_rank} is above what vLLM has kernels for: "
            f"{VLLM_LORA_RANKS[-1]}"
        )
    if config.sleep_level == 2:
        raise ConfigError(
            "--sleep_level 2 drops the engine's weights, and --vllm_enable_lora sends only the "
            "adapters afterwards; use --sleep_level 1, or leave --vllm_enable_lora out"
        )


def _check_trackers(names: list[str]) -> None:
    for name in names:
        if name not in TRACKERS:
            raise ConfigError(f"--report_to {name} is not one of {', '.join(TRACKERS)}, none")
        if find_spec(name) is None:
            raise ConfigError(
                f"--report_to {name}: the package {name} is not installed; pip install {name}, or "
                "leave it out of --report_to"
            )
