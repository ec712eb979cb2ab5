"""A user's reward functions, one of each kind."""

from __future__ import annotations

import asyncio
from typing import Any


def brevity(completions: list[str], **_columns: Any) -> list[float]:
    return [-len(completion.encode()) / 100 for completion in completions]


async def digits(completions: list[str], **_columns: Any) -> list[float | None]:
    await asyncio.sleep(0)
    return [sum(c.isdigit() for c in text) / len(text) if text else None for text in completions]
