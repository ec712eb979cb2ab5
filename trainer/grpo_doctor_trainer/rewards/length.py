"""`length`: the soft overlong punishment of DAPO (arXiv 2503.14476, equation 13).

0 up to a soft limit, then falling in a straight line to -1 at the longest completion there can be.
DAPO punishes over the last 4096 of 20480 tokens; here it is the same share of
`--max_completion_length`, one fifth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from grpo_doctor_trainer.config import TrainerConfig

_PUNISHED_SHARE = 4096 / 20480


def make_length(config: TrainerConfig) -> Callable[..., list[float]]:
    """Makes the function for the limit of a run."""
    longest = config.max_completion_length
    punished = max(1, round(longest * _PUNISHED_SHARE))

    def length(completion_ids: list[list[int]], **_columns: object) -> list[float]:
        return [overlong_punishment(len(ids), longest, punished) for ids in completion_ids]

    return length


def overlong_punishment(tokens: int, longest: int, punished: int) -> float:
    """Scores a completion of `tokens` tokens, its end token included, from 0 down to -1.

    Args:
        tokens: its length.
        longest: where the punishment is full, L_max of the paper.
        punished: how many tokens before that it begins, L_cache of the paper.
    """
    excess = tokens - (longest - punished)
    return 0.0 - min(1.0, max(0, excess) / punished)
