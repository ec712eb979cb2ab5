"""What the benchmark of step memory makes of readings, and that it reads real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from benchmarks.measured import resident_bytes
from benchmarks.trainer_jobs import JobFailedError, Mark
from benchmarks.trainer_memory import (
    Memory,
    Reading,
    Watch,
    grandchildren,
    memory_text,
)

_MIB = 1024**2
_FIRST, _LAST = Mark(10.0, 0.0, "step 2"), Mark(20.0, 0.0, "step 5")
# A launcher whose child fills 64 MiB, says so, and ends with its standard input.
_RANK = "import sys; filled = b'x' * (64 << 20); print('filled', flush=True); sys.stdin.read()"
_LAUNCHER = f"import subprocess, sys; subprocess.call([sys.executable, '-c', {_RANK!r}])"


def test_a_step_is_the_peak_less_the_lowest_reading_of_the_rank_with_the_highest_peak() -> None:
    readings = [
        Reading(11.0, 1, 300 * _MIB), Reading(12.0, 1, 400 * _MIB),
        Reading(11.0, 2, 350 * _MIB), Reading(12.0, 2, 380 * _MIB),
    ]  # fmt: skip
    assert Memory.between(_FIRST, _LAST, readings) == Memory(400 * _MIB, 100 * _MIB)


def test_what_was_read_before_and_after_the_measured_steps_does_not_count() -> None:
    readings = [
        Reading(9.9, 1, 900 * _MIB), Reading(10.0, 1, 200 * _MIB),
        Reading(20.0, 1, 210 * _MIB), Reading(20.1, 1, 1 * _MIB),
    ]  # fmt: skip
    assert Memory.between(_FIRST, _LAST, readings) == Memory(210 * _MIB, 10 * _MIB)


def test_a_job_of_which_nothing_was_read_has_failed() -> None:
    with pytest.raises(JobFailedError, match="no rank's memory"):
        Memory.between(_FIRST, _LAST, [Reading(9.0, 1, _MIB)])


def test_memory_is_said_in_mib() -> None:
    text = memory_text(Memory(2048 * _MIB, 100 * _MIB))
    assert text == "100 MiB per step (peak 2,048)"


def test_a_rank_of_a_launcher_is_read_while_it_runs() -> None:
    command = [sys.executable, "-c", _LAUNCHER]
    with Watch() as watch, subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as launcher:  # fmt: skip
        assert launcher.stdout
        assert launcher.stdin
        assert launcher.stdout.readline() == "filled\n"
        (rank,) = (pid for pid in grandchildren(os.getpid()) if resident_bytes(pid) > 64 * _MIB)
        deadline_s = time.monotonic() + 60
        while not any(reading.pid == rank for reading in list(watch.readings)):
            assert time.monotonic() < deadline_s
            os.sched_yield()
        launcher.stdin.close()
    assert max(reading.resident_bytes for reading in watch.readings) > 64 * _MIB


def test_a_process_that_has_ended_has_no_memory_and_no_children() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert resident_bytes(process.pid) == 0
    assert grandchildren(process.pid) == []
