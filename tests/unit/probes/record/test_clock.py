"""Clock readings of this process."""

from __future__ import annotations

import io
import os
import subprocess
import time
from types import SimpleNamespace

import pytest

from grpo_doctor_probes.record import clock
from tests.recording import run_job


def test_a_reading_pairs_both_clocks() -> None:
    before = time.monotonic_ns(), time.time_ns()
    reading = clock.read()
    after = time.monotonic_ns(), time.time_ns()
    assert before[0] <= reading["monotonic_ns"] <= after[0]
    assert before[1] - 1_000_000 <= reading["unix_ns"] <= after[1] + 1_000_000
    assert 0 <= reading["error_ns"] < 1_000_000_000


def test_processes_of_one_machine_have_one_clock() -> None:
    result = run_job("from grpo_doctor_probes.record import clock; print(clock.identity())", None)
    assert clock.identity()
    assert result.stdout.strip() == clock.identity()


@pytest.mark.parametrize(
    ("state", "suspended_ns", "start_ns"),
    [("S", 0, 5_000_000_000), ("R", 300, 4_999_999_700), ("Z", 0, None)],
)
def test_a_start_is_told_without_the_time_in_suspend(
    monkeypatch: pytest.MonkeyPatch, state: str, suspended_ns: int, start_ns: int | None
) -> None:
    """As CLOCK_MONOTONIC goes."""
    behind = " ".join([state, *"0" * 18, str(5 * os.sysconf("SC_CLK_TCK")), "0"])
    stat = f"7 (a ) S 1 name) {behind}\n".encode()
    times = SimpleNamespace(
        CLOCK_BOOTTIME=7, clock_gettime_ns=lambda _: 200 + suspended_ns, monotonic_ns=lambda: 200
    )
    monkeypatch.setattr(clock, "open", lambda *_: io.BytesIO(stat), raising=False)
    monkeypatch.setattr(clock, "time", times)
    assert clock.process_start_ns(7) == start_ns


def test_a_process_that_is_gone_has_no_start() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert clock.process_start_ns(process.pid) is None
