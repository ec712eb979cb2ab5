"""A user's plugin for ms-swift that knows how long its own parts take, from 3.12 to 4.6.

TIMES is JSON: seconds that each call of a reward and each fetched batch sleeps, by name (`reward`,
`judge`, `dataload`, `callback`). Rank 0 writes what they took in all to $FOLDER/stopwatch.json.
FAIL_AT=N: the N-th reward raises.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

try:
    from swift.callbacks import callbacks_map  # type: ignore[import-not-found, unused-ignore]
    from swift.rewards import ORM, orms  # type: ignore[import-not-found, unused-ignore]
except ImportError:  # before 4.0
    from swift.plugin import ORM, orms  # type: ignore[import-not-found, unused-ignore]
    from swift.plugin.callback import (  # type: ignore[import-not-found, unused-ignore]
        extra_callbacks,
    )

    callbacks_map = None

SECONDS: dict[str, float] = json.loads(os.environ["TIMES"])
CALLS: list[int] = []
MEASURED = dict.fromkeys(SECONDS, 0.0)


def spend(part: str) -> None:
    """Sleeps as ordered, and adds what it really took, on a machine that others use too."""
    start = time.perf_counter()
    time.sleep(SECONDS[part])
    MEASURED[part] += time.perf_counter() - start


class Length(ORM):  # type: ignore[misc, unused-ignore]
    def __call__(self, completions: list[str], **_: Any) -> list[float]:
        spend("reward")
        CALLS.append(1)
        if len(CALLS) == int(os.environ.get("FAIL_AT", "0")):
            raise ValueError("no reward for this one")
        return [float(len(set(text))) for text in completions]


class Judge(ORM):  # type: ignore[misc, unused-ignore]
    def __call__(self, completions: list[str], **_: Any) -> list[float]:
        spend("judge")
        return [float(len(text)) for text in completions]


class Slow(TrainerCallback):  # type: ignore[misc, unused-ignore]
    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def on_train_begin(self, *_: Any, train_dataloader: Any = None, **__: Any) -> None:
        train_dataloader.dataset.set_transform(slow)

    def on_step_end(self, *_: Any, **__: Any) -> None:
        spend("callback")

    def on_train_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        if state.is_world_process_zero:
            Path(os.environ["FOLDER"], "stopwatch.json").write_text(json.dumps(MEASURED))


def slow(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
    spend("dataload")
    return batch


orms.update(length=Length, judge=Judge)
if callbacks_map is None:
    extra_callbacks.append(Slow())
else:
    callbacks_map["slow"] = Slow
