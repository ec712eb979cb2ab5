"""Calls that a dead file server can hold for ever, made where they cannot hold us."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Value = TypeVar("Value")


def within(seconds: float, ask: Callable[[], Value]) -> Value:
    """What `ask` returns. On a timeout its thread is left behind; it cannot be ended from here.

    Raises:
        TimeoutError: it took longer.
        Exception: what `ask` raised.
    """
    answers: list[Value] = []
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
        raise TimeoutError(f"no answer within {seconds:.1f} s")
    return answers[0]
