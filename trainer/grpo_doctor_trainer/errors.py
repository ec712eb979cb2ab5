"""What can go wrong that a user can put right. Each message says what to do next."""

from __future__ import annotations


class TrainerError(Exception):
    """A mistake in the launch or its inputs: printed as one message, exit code 2, no traceback."""


class ConfigError(TrainerError):
    """A flag that does not exist, or a value that cannot work."""


class DatasetError(TrainerError):
    """A dataset that is missing or malformed; names the file, line and column."""


class ModelError(TrainerError):
    """A model or tokenizer that cannot be loaded."""


class RewardError(TrainerError):
    """A reward function that cannot be found, or that returned something else than rewards."""


class RolloutError(TrainerError):
    """A rollout engine that cannot start, died, or does not answer; names its log."""


class OutOfMemoryError(TrainerError):
    """A device ran out of memory: in which phase, holding what, and the option that helps."""


class CheckpointError(TrainerError):
    """A checkpoint that could not be written; the one before it is intact."""
