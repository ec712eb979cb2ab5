"""Calls that a dead file server can hold for ever, made where they cannot hold us."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Value = TypeVar("Value")


def within(seconds: float, ask: Callable[[], Value]) -> Value:
    """What `ask` returns. On a timeout its thread is left behind; it cannot be ended from here.

    Raises:
        TimeoutError: it took longer.
        Exception: what `ask` raised.
    """
    call = Call(ask)
    call.thread.join(max(0.0, seconds))
    return call.answer()


class Call(Generic[Value]):
    """A call in a thread of its own, which nobody has to wait for."""

    def __init__(self, ask: Callable[[], Value]) -> None:
        self._ask = ask
        self._answers: list[Value] = []
        self._errors: list[Exception] = []
        self.thread = threading.Thread(target=self._run, name="bounded", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._answers.append(self._ask())
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            self._errors.append(error)

    def answer(self) -> Value:
        """What it returned. Raises what it raised; TimeoutError: nothing of both yet."""
        if self._errors:
            raise self._errors[0]
        if not self._answers:
            raise TimeoutError("it gave no answer in time")
        return self._answers[0]
