"""A reward that is slow on one rank: what a report of a straggler looks like.

grpo-doctor run -- --reward_funcs accuracy docs/examples/slow_reward.py:slow --max_steps 25
"""

from __future__ import annotations

import os
import time
from typing import Any

from grpo_doctor_trainer.tasks import arithmetic_reward

SECONDS = 0.3


def slow(completions: list[str], **_columns: Any) -> list[float]:
    """Scores nothing, and takes its time on rank 1."""
    if os.environ.get("RANK") == "1":
        time.sleep(SECONDS)
    return [0.0] * len(completions)


def judged(completions: list[str], solution: list[str], **_columns: Any) -> list[float]:
    """Scores as `arithmetic` does, by a judge that answers late on rank 1: `make demo`."""
    slow(completions)
    return arithmetic_reward(completions, solution)
