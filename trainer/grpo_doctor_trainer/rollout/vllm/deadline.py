"""A deadline on every wait for an engine inside this process.

An engine can hang where no other rank or program notices: in a collective that another rank never
joins, in a kernel, in a download. After the deadline a timer signal raises in the main thread. Code
that does not return to Python never sees a signal; so some seconds later a thread says the same and
ends the process.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from grpo_doctor_trainer.errors import RolloutError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import FrameType

_USER_ERROR = 2
_GRACE_S = 5.0


class EngineDeadline:
    """Watches waits on one engine.

    Args:
        timeout_s: seconds of silence that are an error.
        log: the engine's log file, which the message names.
        console: file descriptor of the real stderr, also while it is redirected.
    """

    def __init__(self, timeout_s: float, log: Path, console: int = 2) -> None:
        self._timeout_s = timeout_s
        self._log = log
        self._console = console
        self._ends_s = 0.0

    @contextmanager
    def waiting(self, doing: str) -> Iterator[Callable[[], None]]:
        """Allows the body `timeout_s`; calling what it gives starts the time again.

        Raises:
            RolloutError: in the body, when the time is up.
        """
        message = self.message(doing)
        done = threading.Event()
        on_main = threading.current_thread() is threading.main_thread()
        previous = signal.getsignal(signal.SIGALRM) if on_main else None

        def give_up(_number: int, _frame: FrameType | None) -> None:
            raise RolloutError(message)

        if on_main:
            signal.signal(signal.SIGALRM, give_up)
        self._start(on_main)
        watcher = threading.Thread(target=self._watch, args=(done, message), daemon=True)
        watcher.start()
        try:
            yield lambda: self._start(on_main)
        finally:
            done.set()
            if on_main:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, previous or signal.SIG_DFL)

    def message(self, doing: str) -> str:
        """Says what was waited for, how long, where to read on and what to change."""
        return (
            f"vLLM did not answer for {self._timeout_s:g} s while {doing} (--vllm_timeout). Its "
            f"log is {self._log}. If that shows work going on, raise --vllm_timeout; if not, "
            "another rank has failed or stopped, or the engine hangs: look for the first rank that "
            "says something."
        )

    def _start(self, on_main: bool) -> None:
        self._ends_s = time.monotonic() + self._timeout_s
        if on_main:
            signal.setitimer(signal.ITIMER_REAL, self._timeout_s)

    def _watch(self, done: threading.Event, message: str) -> None:
        while (left_s := self._ends_s + _GRACE_S - time.monotonic()) > 0:
            if done.wait(left_s):
                return
        os.write(self._console, f"error: {message}\n".encode())
        os._exit(_USER_ERROR)
