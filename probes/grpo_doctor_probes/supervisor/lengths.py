"""How long each phase usually takes, learned from the run itself, and from when on it is too long.

The limit is `max(FLOOR_S, FACTOR x p99)` of the lengths seen under that name. What was never seen
to end gets FIRST_S instead: a first rollout compiles, a first step loads and allocates. A limit
that is too low costs one look at the job and doubles itself; one that is too high costs the wait.
"""

from __future__ import annotations

import math
from collections import deque

# Shorter waits are everyday on a busy machine: a checkpoint, a garbage collection, a page fault.
FLOOR_S = 35.0
# torch.compile and CUDA graphs of a 7B model take one to two minutes (vLLM logs its own times).
FIRST_S = 120.0
# Of a phase's p99: rollouts and rewards have long tails, and twice the p99 is still met weekly.
FACTOR = 3.0
# A judged "slow, not stuck" says nothing before the phase is this many times as old.
PATIENCE = 2.0
# Of the backend's timeout; the rest is for the look: at 100% it kills the ranks, and the evidence.
OF_TIMEOUT = 0.8
_REMEMBERED = 256


class Lengths:
    """What was observed, by name. Lengths are seconds.

    Args:
        fixed_s: the user's own limit, which then holds for every name and is never learned.
        timeout_s: when the backend gives up on a collective.
    """

    def __init__(self, fixed_s: float | None = None, timeout_s: float = math.inf) -> None:
        self.collective_limit_s = OF_TIMEOUT * timeout_s
        self._fixed_s = fixed_s
        self._seen: dict[str, deque[float]] = {}
        self._tolerated: dict[str, float] = {}

    def learn(self, name: str, length_s: float) -> None:
        """Takes in one length. The latest 256 of a name count."""
        self._seen.setdefault(name, deque(maxlen=_REMEMBERED)).append(length_s)

    def knows(self, name: str) -> bool:
        """Whether one of that name was seen to end."""
        return name in self._seen

    def limit_s(self, name: str, *, first: bool) -> float:
        """From which age on it is suspicious. `first`: none of that name has ended yet."""
        if self._fixed_s is not None:
            learned = self._fixed_s
        elif first:
            learned = FIRST_S
        else:
            learned = max(FLOOR_S, FACTOR * p99(self._seen.get(name, ())))
        return max(learned, self._tolerated.get(name, 0.0))

    def tolerate(self, name: str, age_s: float) -> None:
        """It was looked at when that old and found to be fine: it may get twice as old."""
        self._tolerated[name] = max(self._tolerated.get(name, 0.0), PATIENCE * age_s)


def p99(values: deque[float] | tuple[float, ...]) -> float:
    """The nearest-rank 99th percentile; 0 of nothing."""
    if not values:
        return 0.0
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]
