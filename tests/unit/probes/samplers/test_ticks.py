"""Deadlines on a grid that does not drift."""

from __future__ import annotations

import threading
import time

from grpo_doctor_probes.samplers.sampler import Grid, SystemClock
from grpo_doctor_probes.samplers.tracks import Pace

MS = 1_000_000


def test_the_grid_does_not_drift() -> None:
    grid = Grid(origin_ns=7, period_ns=100)
    deadlines = [grid.next_deadline(now) for now in (10, 150, 260)]
    assert deadlines == [107, 207, 307]
    assert grid.late == 0


def test_missed_deadlines_are_left_out_and_counted() -> None:
    grid = Grid(origin_ns=0, period_ns=100)
    assert grid.next_deadline(350) == 300  # 100 and 200 are gone; 300 is due at once
    assert grid.late == 2
    assert grid.next_deadline(351) == 400
    assert grid.late == 2


def test_half_the_rate_counts_from_the_last_deadline() -> None:
    grid = Grid(origin_ns=0, period_ns=100)
    grid.next_deadline(0)
    grid.halve_rate()
    assert grid.next_deadline(100) == 300


def test_a_cheap_part_keeps_its_period_in_spite_of_jitter() -> None:
    pace = Pace(1000 * MS)
    assert pace.due(0)
    pace.done(0, cpu_ns=1000)
    assert not pace.due(990 * MS - 1)
    assert pace.due(990 * MS)


def test_a_dear_part_is_spaced_out_up_to_two_seconds() -> None:
    pace = Pace(200 * MS, share=0.01)
    pace.done(0, cpu_ns=5 * MS)
    assert pace.due(200 * MS), "one slow read alone"
    pace.done(200 * MS, cpu_ns=6 * MS)
    assert not pace.due(600 * MS)
    assert pace.due(700 * MS)
    for _ in range(2):
        pace.done(1000 * MS, cpu_ns=5000 * MS)
    assert not pace.due(2900 * MS)
    assert pace.due(3000 * MS)


def test_the_system_clock_waits_and_can_be_stopped() -> None:
    clock, stop = SystemClock(), threading.Event()
    deadline_ns = clock.monotonic_ns() + 5 * MS
    assert not clock.wait_until(deadline_ns, stop)
    assert clock.monotonic_ns() >= deadline_ns
    assert not clock.wait_until(0, stop)
    stop.set()
    assert clock.wait_until(clock.monotonic_ns() + 10_000 * MS, stop)
    assert abs(clock.unix_ns() - time.time_ns()) < 10_000 * MS
