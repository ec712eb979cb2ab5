"""For how long a tracer really stopped a process, seen from outside."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import TYPE_CHECKING

from grpo_doctor_probes.procstat import state_of

if TYPE_CHECKING:
    from types import TracebackType

_TRACED = "t"
_STOPPED = "T"
_PERIOD_S = 0.001
_SETTLES_S = 0.5


class PauseWatch:
    """Polls the main thread's state every millisecond while the block runs."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._longest_ns = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="pause-watch", daemon=True)

    def __enter__(self) -> PauseWatch:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join()

    def longest_ms(self) -> float:
        """The longest time for which it was seen stopped by a tracer, to one period."""
        return self._longest_ns / 1e6

    def _watch(self) -> None:
        since_ns: int | None = None
        while not self._end.wait(_PERIOD_S):
            now_ns = time.monotonic_ns()
            if state_of(f"/proc/{self._pid}") != _TRACED:
                since_ns = None
                continue
            since_ns = since_ns or now_ns
            self._longest_ns = max(self._longest_ns, now_ns - since_ns + int(_PERIOD_S * 1e9))


def leave_running(pid: int) -> None:
    """Continue a process that a killed tracer left stopped: attaching works by a stop signal, which
    can still be under way when the tracer ends. Call only for one that ran before.
    """
    folder, deadline = f"/proc/{pid}", time.monotonic() + _SETTLES_S
    while state_of(folder) == _TRACED and time.monotonic() < deadline:
        time.sleep(_PERIOD_S)
    if state_of(folder) == _STOPPED:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
