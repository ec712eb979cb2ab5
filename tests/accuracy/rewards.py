"""Reward functions of the bench's runs; some are slow, as a service or a disk is: they wait.

Waiting needs no core, so that two cores can show what more processes bring.
"""

from __future__ import annotations

import os
import time
from typing import Any

CALL_S = 0.06
LATE_S = 0.12
ROW_S = 0.03
SLOW_ROWS = "ACCURACY_SLOW_ROWS"


def length(completions: list[str], **_columns: Any) -> list[float]:
    """Longer is better."""
    return [float(len(completion)) for completion in completions]


def judge(completions: list[str], **_columns: Any) -> list[float]:
    """Asks a service, one call for the whole batch."""
    time.sleep(CALL_S)
    return [float(len(completion)) for completion in completions]


def second_judge(completions: list[str], **_columns: Any) -> list[float]:
    """Asks another one."""
    time.sleep(CALL_S)
    return [float(len(set(completion))) for completion in completions]


def late_on_rank_1(completions: list[str], **_columns: Any) -> list[float]:
    """Takes longer on one rank."""
    time.sleep(LATE_S if os.environ["RANK"] == "1" else LATE_S / 12)
    return [float(len(completion)) for completion in completions]


def even(completions: list[str], **_columns: Any) -> list[float]:
    """The same where that rank has been fixed."""
    time.sleep(LATE_S / 12)
    return [float(len(completion)) for completion in completions]


def _slow_down_rows() -> None:
    """Each prompt takes `ROW_S` longer to read, in whatever process makes it.

    The rank imports its reward functions before it starts loader processes, which are forks.
    """
    from grpo_doctor_trainer.data.prompts import PromptMaker

    text: Any = PromptMaker._text

    def slowly(self: Any, row: Any) -> Any:
        time.sleep(ROW_S)
        return text(self, row)

    PromptMaker._text = slowly  # type: ignore[method-assign]


if os.environ.get(SLOW_ROWS):
    _slow_down_rows()
