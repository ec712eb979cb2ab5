"""A user's reward for verl that sleeps, and writes when each call began and ended.

`REWARD_SLEEP_S` and `REWARD_LOG` say how long and where.
"""

from __future__ import annotations

import os
import time
from typing import Any


def length_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Any = None
) -> float:
    begun_ns = time.monotonic_ns()
    time.sleep(float(os.environ["REWARD_SLEEP_S"]))
    score = (len(solution_str) % 7) / 7
    with open(os.environ["REWARD_LOG"], "a", encoding="utf-8") as log:  # noqa: PTH123
        log.write(f"{begun_ns} {time.monotonic_ns()}\n")
    return score
