"""Clock readings of this process."""

from __future__ import annotations

import os
import subprocess
import time

from grpo_doctor_probes import clock
from tests.recording import run_job


def test_a_reading_pairs_both_clocks() -> None:
    before = time.monotonic_ns(), time.time_ns()
    reading = clock.read()
    after = time.monotonic_ns(), time.time_ns()
    assert before[0] <= reading["monotonic_ns"] <= after[0]
    assert before[1] - 1_000_000 <= reading["unix_ns"] <= after[1] + 1_000_000
    assert 0 <= reading["error_ns"] < 1_000_000_000


def test_processes_of_one_machine_have_one_clock() -> None:
    other = run_job("from grpo_doctor_probes import clock; print(clock.identity())", None)
    assert clock.identity()
    assert other.stdout.strip() == clock.identity()


def test_the_start_of_this_process_was_before_now_and_after_its_parents() -> None:
    started, parent = clock.process_start_ns(), clock.process_start_ns(os.getppid())
    assert started is not None
    assert parent is not None
    assert parent <= started <= time.monotonic_ns()


def test_a_process_that_is_gone_has_no_start() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert clock.process_start_ns(gone.pid) is None
