"""Signals as one exception: the first one stops, the others change nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from grpo_doctor_trainer import interrupts
from grpo_doctor_trainer.interrupts import (
    Interrupted,
    catch_signals,
    interrupted_by,
    only_note_signals,
    stop_if_asked,
)


@pytest.fixture(autouse=True)
def _signals_as_they_were(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(interrupts, "_received", [])
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_raises_and_is_remembered(number: signal.Signals) -> None:
    catch_signals()
    stop_if_asked()
    assert interrupted_by() is None
    with pytest.raises(Interrupted) as stop:
        send(number)
    assert stop.value.signal_number == interrupted_by() == number


def test_later_ones_raise_nothing_and_the_first_one_counts() -> None:
    catch_signals()
    with pytest.raises(Interrupted):
        send(signal.SIGTERM)
    send(signal.SIGINT)
    assert interrupted_by() == signal.SIGTERM
    with pytest.raises(Interrupted) as again:
        stop_if_asked()
    assert again.value.signal_number == signal.SIGTERM


def test_on_the_way_out_a_signal_is_noted() -> None:
    catch_signals()
    only_note_signals()
    send(signal.SIGINT)
    assert interrupted_by() == signal.SIGINT
