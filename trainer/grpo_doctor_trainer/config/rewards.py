"""Reward functions, and what becomes of their scores."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor_trainer.config.option import option


@dataclass(frozen=True)
class RewardOptions:
    """Reward functions, and what becomes of their scores."""

    reward_funcs: list[str] = option(
        [],
        "rewards",
        "accuracy, format, length, arithmetic, or path/to/file.py:function; "
        "none: accuracy, with arithmetic for generated arithmetic",
    )
    reward_weights: list[float] = option(
        [], "rewards", "one weight per reward function; none: 1 each"
    )
    scale_rewards: str = option(
        "group",
        "rewards",
        "what divides the advantages: the reward's standard deviation in its group, in the whole "
        "batch, or nothing",
        choices=("group", "batch", "none"),
        embedded="none",
    )
    reward_timeout: float = option(
        60.0,
        "rewards",
        "seconds one call of a reward function may take for the rank's whole batch, and a built-in "
        "one for each completion; then the run ends and says where it hung; 0: no limit",
    )
    reward_num_workers: int = option(
        1,
        "rewards",
        "processes per rank that run the reward functions, different ones at once; 0: in the "
        "trainer's own process, where nothing ends a function that hangs in C code",
    )
