"""Slow reads, taken in turn so that together they leave most of each tick free."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PERIOD_NS = 1_000_000_000
TICK_SHARE = 0.4

Job = TypeVar("Job")


@dataclass(slots=True)
class _Entry(Generic[Job]):
    job: Job
    due_ns: int


class Rota(Generic[Job]):
    """Gives each job a turn at most once a second.

    NVML's PCIe counters block for 20 ms: 8 GPUs, two directions, are 320 ms a second. A tick starts
    jobs, the longest overdue first, until they have taken `TICK_SHARE` of the time between ticks.
    """

    def __init__(self, timer_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._entries: list[_Entry[Job]] = []
        self._timer_ns = timer_ns
        self._tick_ns: int | None = None

    def add(self, job: Job) -> None:
        """Append a job; it is due at once."""
        self._entries.append(_Entry(job, 0))

    def discard(self, unwanted: Callable[[Job], bool]) -> None:
        """Take jobs out for good."""
        self._entries = [entry for entry in self._entries if not unwanted(entry.job)]

    def turns(self, now_ns: int) -> Iterator[Job]:
        """The jobs to do now; the time that the caller takes for each counts. At least one."""
        interval_ns = 0 if self._tick_ns is None else now_ns - self._tick_ns
        self._tick_ns = now_ns
        begun_ns = self._timer_ns()
        for entry in sorted(self._entries, key=lambda entry: entry.due_ns):
            if entry.due_ns > now_ns:
                return
            entry.due_ns = now_ns + PERIOD_NS
            yield entry.job
            if self._timer_ns() - begun_ns >= TICK_SHARE * interval_ns:
                return
