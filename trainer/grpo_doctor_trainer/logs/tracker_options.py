"""`--report_to`: which trackers there are, and whether their packages are installed."""

from __future__ import annotations

import difflib
from importlib.util import find_spec
from typing import TYPE_CHECKING

from grpo_doctor_trainer.errors import ConfigError

if TYPE_CHECKING:
    from grpo_doctor_trainer.config import TrainerConfig

TRACKERS = ("tensorboard", "wandb", "swanlab")
_NONE = "none"


def wanted_trackers(config: TrainerConfig) -> list[str]:
    """Gives the names in `--report_to`, each once; ms-swift's `none` is no tracker."""
    return [name for name in dict.fromkeys(config.report_to) if name.lower() != _NONE]


def check_trackers(config: TrainerConfig) -> None:
    """Raises `ConfigError` for a tracker that does not exist or is not installed."""
    for name in wanted_trackers(config):
        if name not in TRACKERS:
            close = difflib.get_close_matches(name.lower(), TRACKERS, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ConfigError(
                f"--report_to {name} is not one of {', '.join(TRACKERS)}, {_NONE}{hint}"
            )
        if find_spec(name) is None:
            raise ConfigError(
                f"--report_to {name}: the package {name} is not installed; pip install {name}, or "
                "leave it out of --report_to"
            )
