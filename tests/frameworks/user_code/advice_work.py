"""What the jobs of `tests.frameworks.advice` do besides training: rows and rewards that take time.

WORK is JSON: `row_s`, seconds that each row of the data takes to read; `judges`, reward functions
by name and the seconds that each call waits; `async`, whether they are coroutines.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

WORK: Mapping[str, Any] = json.loads(os.environ.get("WORK", "{}"))
WITHOUT_WAIT: Mapping[str, float] = {"variety": 0.0}
ROWS = 96
# In repeated words: widths that differ much tell a pass's own cost from that of its tokens.
_LONGEST = 24


def rows() -> list[str]:
    """Prompts of many lengths, which repeat some words."""
    return [f"{n}+{n}" + " and one" * (n * 5 % _LONGEST) for n in range(ROWS)]


def read(row: str) -> str:
    """A row as a user's own loading gives it: it reads a file, asks a store."""
    time.sleep(WORK.get("row_s", 0.0))
    return row


def judges() -> list[Callable[..., Any]]:
    """The reward functions, under their names."""
    make = _coroutine if WORK.get("async") else _function
    waits = WORK.get("judges", WITHOUT_WAIT)
    return [make(name, seconds) for name, seconds in waits.items()]


def _scores(completions: list[Any]) -> list[float]:
    return [float(len(set(str(text)))) for text in completions]


def _function(name: str, seconds: float) -> Callable[..., Any]:
    def judge(completions: list[Any], **_: Any) -> list[float]:
        time.sleep(seconds)
        return _scores(completions)

    judge.__name__ = name
    return judge


def _coroutine(name: str, seconds: float) -> Callable[..., Any]:
    async def judge(completions: list[Any], **_: Any) -> list[float]:
        await asyncio.sleep(seconds)
        return _scores(completions)

    judge.__name__ = name
    return judge
