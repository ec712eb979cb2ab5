"""What the ranks' main threads do, from /proc: three small reads a rank, of files kept open."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from pathlib import Path

from grpo_doctor_probes.procstat import CLOCK_TICKS_PER_S, parse_stat
from grpo_doctor_probes.samplers.hostfiles import ProcFile
from grpo_doctor_probes.supervisor.suspicion import Activity

# A thread that polls something ten times a second stays far below; one that computes, far above.
# One that sleeps most of the time may be below as well and well all the same: `expect_less`.
BUSY_SHARE = 0.02
# Polls of 10 ms take up to 0.006 of a core: with half of this they stay no work.
_LEAST_EXAMPLE = 0.012
_SLEEPS = b"\nvoluntary_ctxt_switches:"
_FIELDS = 13  # up to its time on a core


class MainThreads:
    """Looks at main threads; remembers since when each is as it is."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._threads: dict[int, _MainThread] = {}

    def look(self, pids: Collection[int], now_ns: int) -> dict[int, Activity]:
        """The activity of each process that can be read; those that have ended are left out."""
        activities = {}
        for pid in pids:
            with contextlib.suppress(OSError, ValueError, IndexError):
                if pid not in self._threads:
                    self._threads[pid] = _MainThread(self._proc / f"{pid}/task/{pid}", now_ns)
                activities[pid] = self._threads[pid].look(now_ns)
        for pid in self._threads.keys() - activities.keys():
            self._threads.pop(pid).close()
        return activities

    def expect_less(self, pid: int, share: float) -> bool:
        """With that share of a core it was well: half of it is work. False if it is too little."""
        thread = self._threads.get(pid)
        if thread is None or share < _LEAST_EXAMPLE:
            return False
        thread.busy_share = min(thread.busy_share, share / 2)
        return True

    def close(self) -> None:
        """Close all files."""
        self.look((), 0)


class _MainThread:
    def __init__(self, folder: Path, now_ns: int) -> None:
        self._stat, self._status = ProcFile(folder / "stat"), ProcFile(folder / "status")
        self._ran: ProcFile | None = None
        with contextlib.suppress(OSError):  # a kernel without CONFIG_SCHED_INFO
            self._ran = ProcFile(folder / "schedstat")
        self._state, self._since_ns = "", now_ns
        self._seen_ns, self._ran_ns = now_ns, 0
        self._busy_ns = now_ns
        self._sleeps, self._slept_ns = -1, now_ns
        self.busy_share = BUSY_SHARE

    def look(self, now_ns: int) -> Activity:
        stat = parse_stat(self._stat.read_start(), _FIELDS)
        state = stat.state
        if self._ran is not None:
            ran_ns = int(self._ran.read_start().split()[0])
        else:
            ran_ns = stat.cpu_ticks * 1_000_000_000 // CLOCK_TICKS_PER_S
        if state != self._state:
            self._state, self._since_ns = state, now_ns
        if ran_ns - self._ran_ns > self.busy_share * (now_ns - self._seen_ns):
            self._busy_ns = now_ns
        self._seen_ns, self._ran_ns = now_ns, ran_ns
        counted = self._status.read_start().partition(_SLEEPS)[2].split(maxsplit=1)
        sleeps = int(counted[0]) if counted else -1
        if sleeps != self._sleeps or not counted:  # not counted by gVisor: never called busy
            self._sleeps, self._slept_ns = sleeps, now_ns
        return Activity(state, self._since_ns, self._busy_ns, self._slept_ns, ran_ns, sleeps)

    def close(self) -> None:
        self._stat.close()
        self._status.close()
        if self._ran is not None:
            self._ran.close()
