"""What the ranks' main threads do, from /proc: two small reads a rank, of files kept open."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from pathlib import Path

from grpo_doctor_probes.samplers.process import CLOCK_TICKS_PER_S
from grpo_doctor_probes.samplers.procfile import ProcFile
from grpo_doctor_probes.supervisor.suspicion import Activity

# A thread that polls something ten times a second stays far below; one that computes, far above.
BUSY_SHARE = 0.02


class MainThreads:
    """Looks at main threads; remembers since when each is as it is."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._threads: dict[int, _MainThread] = {}

    def look(self, pids: Collection[int], now_ns: int) -> dict[int, Activity]:
        """The activity of each process that can be read; those that have ended are left out."""
        found = {}
        for pid in pids:
            with contextlib.suppress(OSError, ValueError):
                if pid not in self._threads:
                    self._threads[pid] = _MainThread(self._proc / f"{pid}/task/{pid}", now_ns)
                found[pid] = self._threads[pid].look(now_ns)
        for pid in self._threads.keys() - found.keys():
            self._threads.pop(pid).close()
        return found

    def close(self) -> None:
        """Closes all files."""
        self.look((), 0)


class _MainThread:
    def __init__(self, folder: Path, now_ns: int) -> None:
        self._stat = ProcFile(folder / "stat")
        self._ran: ProcFile | None = None
        with contextlib.suppress(OSError):  # a kernel without CONFIG_SCHED_INFO
            self._ran = ProcFile(folder / "schedstat")
        self._state, self._since_ns = "", now_ns
        self._seen_ns, self._ran_ns = now_ns, 0
        self._busy_ns = now_ns

    def look(self, now_ns: int) -> Activity:
        words = self._stat.read_start().rpartition(b")")[2].split()  # its name may hold anything
        state = words[0].decode()
        if self._ran is not None:
            ran_ns = int(self._ran.read_start().split()[0])
        else:
            ran_ns = (int(words[11]) + int(words[12])) * 1_000_000_000 // CLOCK_TICKS_PER_S
        if state != self._state:
            self._state, self._since_ns = state, now_ns
        if ran_ns - self._ran_ns > BUSY_SHARE * (now_ns - self._seen_ns):
            self._busy_ns = now_ns
        self._seen_ns, self._ran_ns = now_ns, ran_ns
        return Activity(state, self._since_ns, self._busy_ns)

    def close(self) -> None:
        self._stat.close()
        if self._ran is not None:
            self._ran.close()
