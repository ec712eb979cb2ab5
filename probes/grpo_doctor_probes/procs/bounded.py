"""Calls that can block forever, made where they cannot block us.

Files of the job may lie on a file system that hangs, and its memory may be locked forever. On a
loaded machine our own thread may wait long for a core; that is not a hang, so `unless_blocked` and
`ask_each` count only the time in which it does not want to run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from grpo_doctor_probes.procs.procstat import state_of

_Answer = TypeVar("_Answer")
_LOOK_EVERY_S = 0.1
_LONGEST_S = 30.0  # whatever the load


def within(seconds: float, ask: Callable[[], _Answer]) -> _Answer:
    """What `ask` returns. On a timeout its thread is left behind; it cannot be ended from here.

    Raises:
        TimeoutError: it took longer.
        Exception: what `ask` raised.
    """
    answers: list[_Answer] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            answers.append(ask())
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            errors.append(error)

    thread = threading.Thread(target=run, name="bounded", daemon=True)
    thread.start()
    thread.join(max(0.0, seconds))
    if errors:
        raise errors[0]
    if not answers:
        raise TimeoutError("it gave no answer in time")
    return answers[0]


def unless_blocked(seconds: float, ask: Callable[[], _Answer], otherwise: _Answer) -> _Answer:
    """What `ask` returns, or `otherwise` when it blocks for longer; its thread is then left behind.

    `ask` handles its own errors.
    """
    answers, _ = ask_each([0], lambda _: ask(), seconds)
    return answers.get(0, otherwise)


class _Walk(Generic[_Answer]):
    """Asks about one number after another, in one thread for all: at high load every hand-over
    between threads may take tens of milliseconds."""

    def __init__(self, numbers: Sequence[int], ask: Callable[[int], _Answer]) -> None:
        self._numbers, self._ask = numbers, ask
        self.answers: dict[int, _Answer] = {}
        self.count = 0  # of answers
        self.abandoned = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while self.count < len(self._numbers) and not self.abandoned:
            number = self._numbers[self.count]
            self.answers[number] = self._ask(number)
            self.count += 1

    def wait(self, seconds: float) -> int:
        """Return how many answered until the end, or until one blocked for longer than that."""
        count, since, blocked_s = self.count, time.monotonic(), 0.0
        while self.thread.is_alive():
            start = time.monotonic()
            self.thread.join(_LOOK_EVERY_S)
            now = time.monotonic()
            if count != self.count:
                count, since, blocked_s = self.count, now, 0.0
            elif state_of(f"/proc/self/task/{self.thread.native_id}") not in ("R", ""):
                blocked_s += min(now - start, 2 * _LOOK_EVERY_S)
            if blocked_s > seconds or now - since > _LONGEST_S:
                self.abandoned = self.thread.is_alive()
                break
        return self.count


def ask_each(
    numbers: Sequence[int], ask: Callable[[int], _Answer], seconds: float
) -> tuple[dict[int, _Answer], list[int]]:
    """Return what `ask` returns for each number, and the numbers at which it blocks for longer.

    `ask` handles its own errors.
    """
    answers: dict[int, _Answer] = {}
    blocking: list[int] = []
    remaining = list(numbers)
    while remaining:
        walk = _Walk(remaining, ask)
        count = walk.wait(seconds)
        answers |= {number: walk.answers[number] for number in remaining[:count]}
        blocking += remaining[count : count + 1]
        remaining = remaining[count + 1 :]
    return answers, blocking
