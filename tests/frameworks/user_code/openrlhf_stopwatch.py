"""A user's reward for OpenRLHF that sleeps, and writes when each call began and ended.

`REWARD_SLEEP_S` and `REWARD_LOG` say how long and where.
"""

from __future__ import annotations

import os
import time
from typing import Any

import torch


def length_score(queries: list[str], prompts: list[str], labels: Any, **_: Any) -> dict[str, Any]:
    begun_ns = time.monotonic_ns()
    time.sleep(float(os.environ["REWARD_SLEEP_S"]))
    pairs = zip(queries, prompts, strict=True)
    scores = torch.tensor([(len(query) - len(prompt)) % 7 / 7 for query, prompt in pairs])
    with open(os.environ["REWARD_LOG"], "a", encoding="utf-8") as log:  # noqa: PTH123
        log.write(f"{begun_ns} {time.monotonic_ns()}\n")
    return {"rewards": scores, "scores": scores, "extra_logs": {}}


reward_func = length_score
