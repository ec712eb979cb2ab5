"""What a GPU was doing, from the kernels and copies on its streams."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]


@dataclass(slots=True)
class Activity:
    """Kernels and copies of one device as they are in the file: microseconds, in any order."""

    start_us: array[float] = field(default_factory=lambda: array("d"))
    length_us: array[float] = field(default_factory=lambda: array("d"))

    def merged(self, base_ns: int) -> tuple[Times, Times]:
        """Begin and end of each stretch in which anything ran, in nanoseconds."""
        start_us = np.array(self.start_us)
        floor_us = np.floor(start_us)
        start = base_ns + floor_us.astype(np.int64) * 1000
        start += np.rint((start_us - floor_us) * 1000).astype(np.int64)
        return merged(start, start + np.rint(np.array(self.length_us) * 1000).astype(np.int64))


@dataclass(slots=True)
class Device:
    """All that ran on one device, and the parts that were communication and that were not."""

    everything: Activity = field(default_factory=Activity)
    communication: Activity = field(default_factory=Activity)
    computation: Activity = field(default_factory=Activity)


def nanoseconds(us: float) -> int:
    """Microseconds since 1970 have no room for a factor in a float64, so that their whole part is
    converted as an integer."""
    floor_us = math.floor(us)
    return floor_us * 1000 + round((us - floor_us) * 1000)


def merged(start_ns: Times, end_ns: Times) -> tuple[Times, Times]:
    """Return the union of intervals, as ascending stretches that do not touch."""
    if not len(start_ns):
        return start_ns, end_ns
    order = np.argsort(start_ns, kind="stable")
    start, reached = start_ns[order], np.maximum.accumulate(end_ns[order])
    begins = np.flatnonzero(np.r_[True, start[1:] > reached[:-1]])
    ends = np.r_[begins[1:] - 1, len(start) - 1]
    return start[begins], reached[ends]


def covered_percent(stretches: tuple[Times, Times], edges_ns: Times) -> NDArray[np.float64]:
    """How much of the time between two edges lies in some stretches, in percent; length n - 1."""
    covered = covered_ns(stretches, edges_ns[:-1], edges_ns[1:])
    percent: NDArray[np.float64] = 100 * covered / np.maximum(1, np.diff(edges_ns))
    return np.clip(percent, 0, 100)


def covered_ns(
    stretches: tuple[Times, Times], begin_ns: Times, end_ns: Times
) -> NDArray[np.float64]:
    """Return how many nanoseconds of each window lie in some stretches; one value per window."""
    start, end = stretches
    if not len(start):
        return np.zeros(len(begin_ns))
    moments = np.column_stack([start, end]).ravel()
    sums = np.concatenate([[0], np.cumsum(end - start)])
    reached = np.column_stack([sums[:-1], sums[1:]]).ravel().astype(float)
    # Differences to the first moment: nanoseconds since 1970 have no room in a float64.
    zero = moments[0]
    times = (moments - zero).astype(float)
    before, after = (
        np.interp((edges - zero).astype(float), times, reached) for edges in (begin_ns, end_ns)
    )
    covered: NDArray[np.float64] = after - before
    return covered
