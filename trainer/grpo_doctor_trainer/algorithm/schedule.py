"""The learning rate of each step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from grpo_doctor_trainer.config import TrainerConfig


def learning_rate(config: TrainerConfig, number: int, total: int) -> float:
    """Gives the learning rate of step `number` (1 to `total`): a linear warm-up, then the rest."""
    warmup = config.warmup_steps or math.ceil(config.warmup_ratio * total)
    if number <= warmup:
        return config.learning_rate * number / warmup
    progress = (number - 1 - warmup) / max(1, total - warmup)
    factor = {
        "constant": 1.0,
        "linear": 1 - progress,
        "cosine": (1 + math.cos(math.pi * progress)) / 2,
    }[config.lr_scheduler_type]
    return config.learning_rate * factor
