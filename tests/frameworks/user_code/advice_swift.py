"""A user's plugin for ms-swift: the same rewards and rows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import advice_work  # type: ignore[import-not-found, unused-ignore]
from swift.callbacks import callbacks_map  # type: ignore[import-not-found, unused-ignore]
from swift.rewards import ORM, AsyncORM, orms  # type: ignore[import-not-found, unused-ignore]
from transformers import TrainerCallback


def _reward(function: Any) -> type:
    async def call_async(_: Any, completions: list[str], **__: Any) -> list[float]:
        scores: list[float] = await function(completions)
        return scores

    def call(_: Any, completions: list[str], **__: Any) -> list[float]:
        scores: list[float] = function(completions)
        return scores

    name = function.__name__.capitalize()
    if advice_work.WORK.get("async"):
        return type(name, (AsyncORM,), {"__call__": call_async})
    return type(name, (ORM,), {"__call__": call})


class SlowRows(TrainerCallback):  # type: ignore[misc, unused-ignore]
    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def on_train_begin(self, *_: Any, train_dataloader: Any = None, **__: Any) -> None:
        train_dataloader.dataset.set_transform(_read)


def _read(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
    for messages in batch["messages"]:
        advice_work.read(messages[0]["content"])
    return batch


orms.update({judge.__name__: _reward(judge) for judge in advice_work.judges()})
callbacks_map["slow_rows"] = SlowRows
