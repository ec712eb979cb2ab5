"""A time limit for code of this thread, by a timer signal.

Only the main thread can have one, and only Python code can be interrupted: a long computation in C
goes on until it returns. What must end for certain runs in a process of its own (`pool`).
"""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_AGAIN_S = 0.5
_NOW_S = 1e-3


class TookTooLong(BaseException):
    """The time limit passed. No Exception, so that no `except Exception` swallows it.

    Attributes:
        stack: file, line and function of what ran, innermost first.
    """

    def __init__(self, frame: FrameType | None) -> None:
        super().__init__("took too long")
        self.stack: list[tuple[str, int, str]] = []
        while frame is not None:
            code = frame.f_code
            self.stack.append((code.co_filename, frame.f_lineno, code.co_name))
            frame = frame.f_back


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises `TookTooLong` in the block once `seconds` have passed; 0, or another thread: never.

    Limits can be nested: the outer one goes on.
    """
    if seconds <= 0 or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, frame: FrameType | None) -> None:
        raise TookTooLong(frame)

    before = signal.signal(signal.SIGALRM, interrupt)
    started = time.monotonic()
    # Again and again: one exception could end in a destructor, where Python drops it.
    outer_s, outer_again_s = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if outer_s:
            left_s = max(_NOW_S, outer_s - (time.monotonic() - started))
            signal.setitimer(signal.ITIMER_REAL, left_s, outer_again_s)
