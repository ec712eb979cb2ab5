"""One process of the job, read from /proc/<pid>. Formats: proc_pid_stat(5), environ(5)."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

from grpo_doctor_probes.discover.scan import parse_environment
from grpo_doctor_probes.procs.procstat import CLOCK_TICKS_PER_S, Stat, parse_stat

_FIELDS = 22  # up to the resident memory
_CHUNK_BYTES = 65536
# Between fork and exec a process shows its parent's environment, so it is read again while young.
SETTLED_NS = 5_000_000_000
YOUNG_S = 2.0


class ProcFile:
    """A file of one record, kept open: a read is then one system call, without a path walk.

    An open /proc/<pid> file belongs to that process for good: when the number is given to another
    process, reads fail with ESRCH and never show the newcomer. Errors are OSError.
    """

    def __init__(self, path: Path | str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> bytes:
        """The first piece: all of a file that is one record."""
        return os.pread(self._descriptor, _CHUNK_BYTES, 0)

    def close(self) -> None:
        """Close it; once only."""
        os.close(self._descriptor)


class Process:
    """A process whose `stat` stays open. Raises OSError at construction when it has gone."""

    def __init__(self, pid: int, proc: Path, now_ns: int) -> None:
        self.pid = pid
        self._folder = proc / str(pid)
        self._seen_ns = now_ns
        self.environment: Mapping[str, str] = {}
        self._stat = ProcFile(self._folder / "stat")
        self._schedstat: ProcFile | None = None
        try:
            first = self.usage()
            if first is None:
                raise ProcessLookupError(f"process {pid} has ended")
            self.parent, self.started_ticks = first.parent, first.started_ticks
        except (OSError, ValueError):
            self._stat.close()
            raise
        with contextlib.suppress(OSError):  # a kernel without CONFIG_SCHED_INFO has none
            self._schedstat = ProcFile(self._folder / "schedstat")
        self.read_environment(now_ns)

    def usage(self) -> Stat | None:
        """Return what it has used up to now; None when it has ended."""
        try:
            stat = parse_stat(self._stat.read(), _FIELDS)
        except ProcessLookupError:
            return None
        return None if stat.dead else stat

    def main_thread_waited_ns(self) -> int | None:
        """How long its main thread has been in a run queue, ready and without a CPU; None where the
        kernel does not report it (/proc/<pid>/schedstat, second number)."""
        if self._schedstat is None:
            return None
        try:
            return int(self._schedstat.read().split()[1])
        except (OSError, ValueError, IndexError):
            return None

    def processors(self) -> int | None:
        """Return how many CPUs it may run on; None where that can't be asked."""
        if not hasattr(os, "sched_getaffinity"):
            return None
        with contextlib.suppress(OSError):
            return len(os.sched_getaffinity(self.pid))
        return None

    def read_environment(self, now_ns: int) -> None:
        """Read the environment while it may still change; other users' stays unknown."""
        if now_ns - self._seen_ns <= SETTLED_NS:
            with contextlib.suppress(OSError):
                self.environment = parse_environment((self._folder / "environ").read_bytes())

    def is_young(self) -> bool:
        """Return whether it was started so lately that it may be between fork and exec."""
        running_s = time.clock_gettime(time.CLOCK_BOOTTIME) - self.started_ticks / CLOCK_TICKS_PER_S
        return running_s < YOUNG_S

    def close(self) -> None:
        """Close what is open."""
        self._stat.close()
        if self._schedstat is not None:
            self._schedstat.close()
