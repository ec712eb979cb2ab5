"""How long Python's garbage collector stopped this process, summed up per step.

A collection holds the GIL: whichever thread started it, all of them stand still. `gc.callbacks`
reports its begin and end. What is called there may run in the middle of any other code, the
recorder's own included, so it only adds up two numbers; they become counters at the end of a step.
"""

from __future__ import annotations

import gc
from time import monotonic_ns

TYPE_CHECKING = False  # `typing` costs 7 ms of import in the job
if TYPE_CHECKING:
    from collections.abc import Mapping

SECONDS = "gc/seconds"
LONGEST = "gc/longest_s"
# The young generation alone takes 10 us a time: so little is not worth two records.
WORTH_WRITING_NS = 100_000
_NS_PER_S = 1e9


class Pauses:
    """Measures from construction to `close`. Never raises into the collector."""

    __slots__ = ("_begun_ns", "_longest_ns", "_total_ns")

    def __init__(self) -> None:
        self._begun_ns = self._total_ns = self._longest_ns = 0
        gc.callbacks.append(self._heard)

    def forget(self) -> None:
        """Leave out what was collected up to now: it belongs to no step."""
        self._total_ns = self._longest_ns = 0

    def take(self) -> tuple[float, float] | None:
        """Seconds in collections since the last answer, and in the longest; None while they are
        not worth a record."""
        total, longest = self._total_ns, self._longest_ns
        if total < WORTH_WRITING_NS:
            return None
        self._total_ns = self._longest_ns = 0
        return total / _NS_PER_S, longest / _NS_PER_S

    def close(self) -> None:
        """Hear no more."""
        if self._heard in gc.callbacks:
            gc.callbacks.remove(self._heard)

    def _heard(self, moment: str, _facts: Mapping[str, int]) -> None:
        if moment == "start":
            self._begun_ns = monotonic_ns()
        elif self._begun_ns:  # else it began before this was listening
            length = monotonic_ns() - self._begun_ns
            self._begun_ns = 0
            self._total_ns += length
            self._longest_ns = max(self._longest_ns, length)
