"""A worker thread for what may take long, for a thread that must never wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue


class Beside:
    """Runs one task at a time; a task that comes while it is busy is dropped, not queued.

    Reading a run directory on a network file system that hangs, or the /proc of a process that
    hangs in the kernel, may take forever; signals to the job must be passed on meanwhile.
    """

    def __init__(self, name: str) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._since_s = 0.0
        # A daemon: where it hangs the program ends all the same.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(self, work: Callable[[], None]) -> bool:
        """Begin `work`, which must not raise; False where it is still at the work before."""
        if not self._idle.is_set():
            return False
        self._idle.clear()
        self._since_s = time.monotonic()
        self._work.put(work)
        return True

    @property
    def busy_s(self) -> float:
        """For how long it has been at its present work; 0 without any."""
        return 0.0 if self._idle.is_set() else time.monotonic() - self._since_s

    def settle(self, at_most_s: float) -> bool:
        """Wait until it is done with its present work; False where it is not in time."""
        return self._idle.wait(at_most_s)

    def close(self) -> None:
        """It ends after its present work."""
        self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            finally:
                self._idle.set()
