"""Ctrl-C and SIGTERM as one exception, which leaves through every `with` and `finally`."""

from __future__ import annotations

import signal
from types import FrameType

_received: list[int] = []


class Interrupted(BaseException):
    """The process was asked to stop."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number


def catch_signals() -> None:
    """Turn the first SIGINT or SIGTERM into `Interrupted`; later ones change nothing."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)


def only_note_signals() -> None:
    """On the way out a signal is noted and raises nothing: it would cut the ending short.

    What hangs there is killed by torchrun after 30 s.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _frame: _received.append(number))


def stop_if_asked() -> None:
    """Raise `Interrupted` again: Python drops what a signal raises inside a destructor."""
    if _received:
        raise Interrupted(_received[0])


def interrupted_by() -> int | None:
    """Return the signal that asked this process to stop, if any."""
    return _received[0] if _received else None


def _interrupt(number: int, _frame: FrameType | None) -> None:
    _received.append(number)
    if len(_received) == 1:
        raise Interrupted(number)
