"""Calls that are not waited for without end."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from grpo_doctor_probes.procs import bounded
from grpo_doctor_probes.procs.bounded import ask_each, unless_blocked, within

BLOCKED: object = "blocked"


def test_an_answer_in_time_an_error_and_none() -> None:
    assert within(5, lambda: 3) == 3
    with pytest.raises(FileNotFoundError):
        within(5, lambda: os.statvfs("/absent-for-sure"))
    stop = threading.Event()
    with pytest.raises(TimeoutError):
        within(0.05, lambda: stop.wait(20))
    stop.set()


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """What is waited for in vain; and looks at a call that come quickly."""
    monkeypatch.setattr(bounded, "_LOOK_EVERY_S", 0.005)
    errors: list[object] = []
    monkeypatch.setattr(threading, "excepthook", errors.append)
    event = threading.Event()
    yield event
    event.set()
    assert errors == [], "a thread of ours has failed"


@pytest.mark.parametrize(
    ("numbers", "hang", "blocking"),
    [
        ([], (), []),
        ([1], (), []),
        ([1], (1,), [1]),
        ([3, 1, 2], (), []),
        ([3, 1, 2], (3,), [3]),
        ([3, 1, 2], (1,), [1]),
        ([3, 1, 2], (2,), [2]),
        ([3, 1, 2], (3, 1), [3, 1]),
        ([3, 1, 2], (1, 2), [1, 2]),
        ([3, 1, 2], (3, 1, 2), [3, 1, 2]),
    ],
)
def test_all_are_asked_but_for_those_that_hang(
    never: threading.Event, numbers: list[int], hang: tuple[int, ...], blocking: list[int]
) -> None:
    calls: list[int] = []

    def ask(number: int) -> str:
        calls.append(number)
        if number in hang:
            never.wait(60)
        return f"answer {number}"

    answers, blocked = ask_each(numbers, ask, 0.01)
    assert blocked == blocking
    assert answers == {number: f"answer {number}" for number in numbers if number not in hang}
    assert calls == numbers


def test_a_call_that_blocks_has_another_answer(never: threading.Event) -> None:
    assert unless_blocked(0.01, lambda: 3, 4) == 3
    assert unless_blocked(0.01, lambda: never.wait(60), BLOCKED) == BLOCKED
    assert unless_blocked(60.0, lambda: never.wait(0.02), BLOCKED) is False


def works(rounds: int) -> str:
    """On its core all the time, and without Python's lock."""
    hashlib.pbkdf2_hmac("sha256", b"", b"", rounds)
    return "done"


def test_a_call_that_works_is_waited_for_but_not_for_ever(
    never: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert unless_blocked(0.02, lambda: works(100_000), "blocked") == "done"
    monkeypatch.setattr(bounded, "_LONGEST_S", 0.02)
    assert unless_blocked(60.0, lambda: works(300_000), "blocked") == "blocked"


def test_a_machine_that_stands_still_makes_no_call_a_blocked_one(
    never: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the time between two looks no more counts than twice what it should have been."""
    now_s, looks = 100.0, 0

    def clock() -> float:
        nonlocal now_s, looks
        looks += 1
        now_s += 5.0 * (looks in (3, 5))
        return now_s

    monkeypatch.setattr(bounded, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(bounded, "_LONGEST_S", 10.0)
    threading.Timer(0.02, never.set).start()
    assert unless_blocked(0.02, lambda: never.wait(60), BLOCKED) is True
