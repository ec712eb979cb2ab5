"""ms-swift's plugin: a reward class around the same rewards."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import reward  # type: ignore[import-not-found, unused-ignore]
from swift.rewards import ORM, orms  # type: ignore[import-not-found, unused-ignore]


class Length(ORM):  # type: ignore[misc, unused-ignore]
    def __call__(self, completions: list[Any], **_: Any) -> list[float]:
        scores: list[float] = reward.length_reward(completions)
        return scores


orms["length"] = Length
