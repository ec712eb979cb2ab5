"""A time limit by a timer signal: within another, and where there can be none."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pytest

from grpo_doctor_trainer.rewards.time_limit import TookTooLong, time_limit


def left_s() -> float:
    """Until the next signal; there may be one of pytest's own."""
    return signal.getitimer(signal.ITIMER_REAL)[0]


@pytest.fixture(autouse=True)
def _no_other_timer() -> Iterator[None]:
    """Puts that of pytest aside."""
    before = signal.setitimer(signal.ITIMER_REAL, 0)
    yield
    signal.setitimer(signal.ITIMER_REAL, *before)


def test_what_is_in_time_leaves_no_timer_behind() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with time_limit(60):
        assert 0 < left_s() <= 60
    assert left_s() == 0
    assert signal.getsignal(signal.SIGALRM) is before


@pytest.mark.parametrize("seconds", [0, -1])
def test_without_a_limit_there_is_no_timer(seconds: float) -> None:
    with time_limit(seconds):
        assert left_s() == 0


def test_another_thread_has_none() -> None:
    durations: list[float] = []

    def limited() -> None:
        with time_limit(60):
            durations.append(left_s())

    thread = threading.Thread(target=limited)
    thread.start()
    thread.join()
    assert durations == [0]


def spin() -> None:
    while True:
        pass


def test_what_runs_on_is_interrupted_where_it_is() -> None:
    with pytest.raises(TookTooLong) as late, time_limit(0.01):
        spin()
    assert late.value.stack[0][0] == __file__
    assert late.value.stack[0][2] == "spin"
    assert left_s() == 0


def test_an_outer_limit_goes_on_behind_an_inner_one() -> None:
    began = time.monotonic()
    with time_limit(60):
        with time_limit(30):
            assert left_s() <= 30
        left, again = signal.getitimer(signal.ITIMER_REAL)
        assert 60 - (time.monotonic() - began) - 1 <= left <= 60
        assert again > 0


def spin_twice() -> None:
    try:
        with time_limit(0.01):
            spin()
    except TookTooLong:
        spin()


def test_an_outer_limit_ends_what_goes_on_behind_an_inner_one() -> None:
    with pytest.raises(TookTooLong) as late, time_limit(0.02):
        spin_twice()
    assert late.value.stack[0][2] == "spin"
