"""Checks of the reward options against each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpo_doctor_trainer.errors import ConfigError

if TYPE_CHECKING:
    from grpo_doctor_trainer.config import TrainerConfig


def check_rewards(config: TrainerConfig) -> None:
    """Raises `ConfigError` for the first reward option that cannot work."""
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
