"""A reward that asks a judge: the wait that stands in for a GPU at work.

Whoever waits for a GPU waits without using the CPU, and nothing that this user may switch makes
the wait shorter.
"""

from __future__ import annotations

import time
from typing import Any

# The user's fixes halved the training time, so a GPU's own work was less than half of a step.
ANSWER_S = 0.6


def count_judged(completions: list[str], solution: list[str], **_columns: Any) -> list[float]:
    """1 for the right number of photographs, after the judge's time for a whole batch."""
    time.sleep(ANSWER_S)
    return [float(right in completion) for completion, right in zip(completions, solution)]
