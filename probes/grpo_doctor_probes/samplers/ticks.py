"""Time for the sampling loop: the clock, and deadlines on a grid that does not drift."""

from __future__ import annotations

import threading
import time

_JITTER_NS = 10_000_000
_MAX_PERIOD_NS = 2_000_000_000


class SystemClock:
    """The clocks of this host, which are all that the loop knows of time."""

    def monotonic_ns(self) -> int:
        """CLOCK_MONOTONIC, which `time.monotonic_ns` reads on Linux."""
        return time.monotonic_ns()

    def unix_ns(self) -> int:
        """CLOCK_REALTIME."""
        return time.time_ns()

    def wait_until(self, deadline_ns: int, stop: threading.Event) -> bool:
        """Sleep until the deadline; True at once when `stop` is set."""
        return stop.wait(max(0, deadline_ns - time.monotonic_ns()) / 1e9)


class Grid:
    """Deadlines at a fixed distance from one origin: a late tick does not shift the next ones."""

    def __init__(self, origin_ns: int, period_ns: int) -> None:
        self.period_ns = period_ns
        self.late = 0
        self._deadline_ns = origin_ns

    def next_deadline(self, now_ns: int) -> int:
        """The next deadline. Those that passed meanwhile are left out and counted in `late`."""
        self._deadline_ns += self.period_ns
        missed = max(0, now_ns - self._deadline_ns) // self.period_ns
        self.late += missed
        self._deadline_ns += missed * self.period_ns
        return self._deadline_ns

    def halve_rate(self) -> None:
        """Twice the distance from the last deadline on."""
        self.period_ns *= 2


class Pace:
    """Lets a part be read every `period_ns`, or less often where it is dear.

    A read that takes longer than `share` of its period is spaced out, up to `_MAX_PERIOD_NS`: on a
    host with many processes, disks or cores it then costs about `share` of one core. One slow read
    alone, a cold cache or the first of all, changes nothing.
    """

    def __init__(self, period_ns: int, share: float = 0.01) -> None:
        self._period_ns = period_ns
        self._share = share
        self._due_ns: int | None = None
        self._cpu_ns = 0

    def due(self, now_ns: int) -> bool:
        """Whether it is time. Ticks a few ms early count, or a slow part would miss every other."""
        return self._due_ns is None or now_ns + _JITTER_NS >= self._due_ns

    def done(self, now_ns: int, cpu_ns: int) -> None:
        """Say that the read of `now_ns` has taken `cpu_ns` of CPU time."""
        usual_ns, self._cpu_ns = min(cpu_ns, self._cpu_ns), cpu_ns
        spaced_ns = min(int(usual_ns / self._share), _MAX_PERIOD_NS)
        self._due_ns = now_ns + max(self._period_ns, spaced_ns)
