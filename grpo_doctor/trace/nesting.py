"""Makes the spans of a lane nest: Chrome Trace Event readers drop what overlaps.

Perfetto 51 to 58 drops a child that ends one nanosecond after its parent
(google/perfetto issues 4280 and 6277); chrome://tracing draws it wrongly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# A child may end this much after its parent through clock reading alone; more is an overlap of
# its own (interleaved coroutines, a shared thread slot) and gets a lane of its own.
CLAMP_NS = 50_000
# A thousand coroutines at once are seen in agentic rollouts. What finds no place on this many lanes
# goes on the last one as it is: drawn wrongly there, read back by us unharmed.
MAX_LANES = 256


def nest(
    start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """End and overflow lanes for one lane's spans.

    Args:
        start_ns: ascending; of equal starts the longest first.
        end_ns: not before `start_ns`.

    Returns:
        The ends, children clamped into their parents, and per span the lane it fits on: 0 is the
        lane itself, 1 and up are overflow lanes. Within a lane spans nest, but for those beyond
        the capacity of MAX_LANES, which are on the last one.
    """
    if _nests_already(start_ns, end_ns):
        return end_ns, np.zeros(len(end_ns), dtype=np.int32)
    ends = end_ns.copy()
    lanes = np.zeros(len(ends), dtype=np.int32)
    stacks: list[list[int]] = [[]]
    for row, (start, end) in enumerate(zip(start_ns.tolist(), end_ns.tolist())):
        lanes[row], ends[row] = _lane_of(stacks, start, end)
    return ends, lanes


def _lane_of(stacks: list[list[int]], start: int, end: int) -> tuple[int, int]:
    """The lane of the next span and its end there; `stacks` has the open ends of each lane."""
    for lane, stack in enumerate(stacks):
        while stack and stack[-1] <= start:
            stack.pop()
        if not stack or end <= stack[-1] + CLAMP_NS:
            inner = min(end, stack[-1]) if stack else end
            stack.append(inner)
            return lane, inner
    if len(stacks) < MAX_LANES:
        stacks.append([end])
        return len(stacks) - 1, end
    return MAX_LANES - 1, end


def _nests_already(start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> bool:
    """Return the common case without a loop: consecutive spans that do not overlap at all."""
    return bool(len(start_ns) == 0 or np.all(end_ns[:-1] <= start_ns[1:]))
