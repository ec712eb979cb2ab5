"""A user's tools and reward for verl: coroutines that sleep, and write when each call was.

`TOOL_SLEEP_S`, `REWARD_SLEEP_S` and `TRUTH` (a folder) say how long and where.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from verl.tools.function_tool import (  # type: ignore[import-not-found, unused-ignore]
    function_tool,
)


async def spend(part: str) -> None:
    begun_ns = time.monotonic_ns()
    await asyncio.sleep(float(os.environ[f"{part.upper()}_SLEEP_S"]))
    with Path(os.environ["TRUTH"], f"{part}.txt").open("a") as log:
        log.write(f"{begun_ns} {time.monotonic_ns()}\n")


@function_tool  # type: ignore[untyped-decorator, unused-ignore]
async def look_up(word: str) -> str:
    """Says what a word means.

    Args:
        word: the word.
    """
    await spend("tool")
    return f"{word} is 4"


@function_tool  # type: ignore[untyped-decorator, unused-ignore]
async def browse(word: str) -> str:
    """Finds a page.

    Args:
        word: of the page.
    """
    raise TimeoutError(word)


async def length_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Any = None
) -> float:
    await spend("reward")
    return (len(solution_str) % 7) / 7
