"""Checks of the options against each other and the number of ranks, before anything is loaded."""

from __future__ import annotations

import math

from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.errors import ConfigError

NOTHING_TO_TRAIN = (
    "--freeze_vit, --freeze_aligner and --freeze_llm together leave no weight to train; "
    "set one of them to false"
)
_MOST_SHOWN = 12


def validate(config: TrainerConfig, world_size: int) -> None:
    """Hold the trainer's options against each other; imports no torch."""
    _check_batch(config, world_size)
    _check_rewards(config)
    if config.freeze_vit and config.freeze_aligner and config.freeze_llm:
        raise ConfigError(NOTHING_TO_TRAIN)
    if config.colocated:
        _check_colocated(config)
    if config.served and config.sleep_level:
        raise ConfigError(
            "--sleep_level works with --vllm_mode colocate only: a server has devices of its own. "
            "Leave it out"
        )
    if config.rollout_importance_sampling_mode is not None and not config.use_vllm:
        raise ConfigError(
            "--rollout_importance_sampling_mode corrects for vLLM's log-probs: add "
            "--use_vllm true, or leave it out"
        )


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


def _check_colocated(config: TrainerConfig) -> None:
    longest = config.vllm_max_model_len
    if longest is not None and longest <= config.max_completion_length:
        raise ConfigError(
            f"--vllm_max_model_len {longest} leaves no room for a prompt before "
            f"--max_completion_length {config.max_completion_length} tokens; raise it to "
            f"{config.max_length + config.max_completion_length} (--max_length + "
            "--max_completion_length), or shorten the completions"
        )
