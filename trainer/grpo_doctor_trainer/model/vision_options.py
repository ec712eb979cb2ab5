"""What the options about images mean, resolved without loading anything."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from grpo_doctor_trainer.errors import ConfigError

if TYPE_CHECKING:
    from grpo_doctor_trainer.config import TrainerConfig

_VARIABLE = "MAX_PIXELS"
NOTHING_TO_TRAIN = (
    "--freeze_vit, --freeze_aligner and --freeze_llm together leave no weight to train; "
    "set one of them to false"
)


def check_vision_options(config: TrainerConfig) -> None:
    """Raises `ConfigError` if nothing is left to train, or an area is no number."""
    if config.freeze_vit and config.freeze_aligner and config.freeze_llm:
        raise ConfigError(NOTHING_TO_TRAIN)
    pixel_limit(config)


def pixel_limit(config: TrainerConfig) -> int | None:
    """Resolves `--max_pixels`, which wins over the variable MAX_PIXELS.

    Raises:
        ConfigError: either is not a whole number above 0.
    """
    name, value = "--max_pixels", str(config.max_pixels)
    if config.max_pixels is None:
        name, value = f"the variable {_VARIABLE}", os.environ.get(_VARIABLE, "")
        if not value:
            return None
    if not value.isdecimal() or int(value) < 1:
        raise ConfigError(f"{name} {value} must be a whole number of pixels above 0, as 1003520")
    return int(value)
