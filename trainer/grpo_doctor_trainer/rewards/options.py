"""Checks of the reward options against each other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from grpo_doctor_trainer.errors import ConfigError

if TYPE_CHECKING:
    from grpo_doctor_trainer.config import TrainerConfig


def check_rewards(config: TrainerConfig) -> None:
    """Raises `ConfigError` for the first reward option that cannot work."""
    timeout = config.reward_timeout
    if not 0 <= timeout < math.inf:
        raise ConfigError(
            f"--reward_timeout {timeout} must be a number of seconds, or 0 for no limit"
        )
    if timeout >= config.ddp_timeout:
        raise ConfigError(
            f"--reward_timeout {timeout:g} must be below --ddp_timeout {config.ddp_timeout}: the "
            "other ranks wait for the rewards no longer than that, and would fail first"
        )
    if config.reward_num_workers < 0:
        raise ConfigError(
            f"--reward_num_workers {config.reward_num_workers} must not be negative; "
            "0 runs the reward functions in the trainer's own process"
        )
