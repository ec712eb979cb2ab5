"""How long a wait has to be to be unusual: the only such table, for live jobs and dumps alike."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

WaitKind = Literal["proven", "asleep", "polls", "outside", "computes", "long"]
LEAST_ENTRIES = 8  # fewer operations than that are no history


@dataclass(frozen=True, slots=True)
class Limit:
    """A wait is unusual if it is longer than both. `untold_s`: without a history of this job."""

    floor_s: float
    times_longest: float
    untold_s: float

    def exceeded(self, waited_s: float, longest_s: float | None, *, history: bool) -> bool:
        """Return whether a wait is unusual; `longest_s` is the longest earlier one, if known."""
        floor_s = self.floor_s if history else self.untold_s
        return waited_s >= max(floor_s, self.times_longest * (longest_s or 0.0))


# Floors are what healthy jobs were seen to take. No recorded healthy or slow job would be called
# stuck at 1.5 times its longest earlier wait; three times leaves room for longer tails.
LIMITS: dict[WaitKind, Limit] = {
    "proven": Limit(3.0, 0.0, 3.0),  # a shorter wait may be a moment in a healthy job
    "asleep": Limit(5.0, 3.0, 30.0),
    "polls": Limit(60.0, 10.0, 60.0),  # a rank that asks often may get a response
    "outside": Limit(60.0, 3.0, 60.0),  # judges were seen to respond after 40 s
    "computes": Limit(300.0, 10.0, math.inf),  # work has long tails
    "long": Limit(1800.0, 10.0, math.inf),  # a rollout, a checkpoint, a download
}
FLOOR_S = LIMITS["asleep"].floor_s
