"""A user's scheduler for ms-swift whose turns sleep a second; TRUTH/tool.txt says when."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import swift_plugin  # type: ignore[import-not-found, unused-ignore]  # noqa: F401 - the reward
from swift.rollout.multi_turn import (  # type: ignore[import-not-found, unused-ignore]
    MultiTurnScheduler,
    multi_turns,
)


class Maze(MultiTurnScheduler):  # type: ignore[misc, unused-ignore]
    def check_finished(self, *_: Any) -> bool:
        return False  # but for `max_turns`

    def step(self, infer_request: Any, *_: Any) -> dict[str, Any]:
        begun_ns = time.monotonic_ns()
        time.sleep(1.0)
        infer_request.messages.append({"role": "user", "content": "Go on."})
        with Path(os.environ["TRUTH"], "tool.txt").open("a") as log:
            log.write(f"{begun_ns} {time.monotonic_ns()}\n")
        return {"infer_request": infer_request}


multi_turns["maze"] = Maze
