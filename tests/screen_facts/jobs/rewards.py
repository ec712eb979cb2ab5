"""Rewards with a fault on rank 1: slow, raising in its fourth call, hanging in its eighth."""

from __future__ import annotations

import itertools
import os
import time
from typing import Any

from grpo_doctor_trainer.tasks import arithmetic_reward

IS_FAULTY = os.environ.get("RANK") == "1"
_calls = itertools.count(1)


def slow(completions: list[str], solution: list[str], **_: Any) -> list[float]:
    if IS_FAULTY:
        time.sleep(0.3)
    return arithmetic_reward(completions, solution)


def raising(completions: list[str], solution: list[str], **_: Any) -> list[float]:
    if IS_FAULTY and next(_calls) == 4:
        raise KeyError("answer")
    return arithmetic_reward(completions, solution)


def hanging(completions: list[str], solution: list[str], **_: Any) -> list[float]:
    if IS_FAULTY and next(_calls) == 8:
        time.sleep(3600)
    return arithmetic_reward(completions, solution)
