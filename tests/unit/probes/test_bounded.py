"""Calls that are not waited for without end."""

from __future__ import annotations

import os
import threading

import pytest

from grpo_doctor_probes.bounded import within


def test_an_answer_in_time_an_error_and_none() -> None:
    assert within(5, lambda: 3) == 3
    with pytest.raises(FileNotFoundError):
        within(5, lambda: os.statvfs("/absent-for-sure"))
    stop = threading.Event()
    with pytest.raises(TimeoutError):
        within(0.05, lambda: stop.wait(20))
    stop.set()


def test_an_error_of_any_kind_is_raised_where_it_is_waited_for() -> None:
    with pytest.raises(ZeroDivisionError):
        within(5, lambda: 1 // 0)
