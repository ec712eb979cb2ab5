"""Several cases at a time: real workers, and which cases may share the machine."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest

from tests.faults import bench, workers
from tests.faults.cases import NO_TIME_LEFT, Options
from tests.faults.registry import load

pytest.importorskip("torch", reason="needs torch")
NAMES = ("sleep in the reward", "another operation", "catastrophic regular expression")


@pytest.mark.slow
def test_workers_hand_back_every_outcome_in_order() -> None:
    faults = [load()[name] for name in NAMES]
    messages: list[str] = []
    over = Options(until=time.monotonic() - 1)
    outcomes = workers.run_faults(faults, [1, 2], over, messages.append, 2)
    assert [outcome.name for outcome in outcomes] == [name for name in NAMES for _ in (1, 2)]
    assert {outcome.skipped for outcome in outcomes} == {NO_TIME_LEFT}
    assert len(messages) == 6


@pytest.mark.slow
def test_a_worker_that_ends_is_reported() -> None:
    worker = workers.Worker()
    try:
        with pytest.raises(ChildProcessError, match="no such fault"):
            worker.run(workers.Task("no such fault"))
    finally:
        worker.close()


def test_what_needs_the_host_runs_alone_and_keeps_a_share_of_the_time() -> None:
    faults = list(load().values())
    now = time.monotonic()
    together, alone, turn = bench.in_turn(faults, now + 100, lambda fault: fault.whole_host)
    assert {f.name for f in together + alone} == set(load())
    assert all(f.busy or f.world_size > 8 or f.family == "network" for f in alone)
    assert now < turn < now + 100
    assert bench.in_turn(faults, math.inf, lambda fault: fault.busy)[2] == math.inf


def test_without_a_limit_the_declared_order_is_kept() -> None:
    faults = [replace(load()[name], busy=False) for name in NAMES]
    assert bench.in_turn(faults, math.inf, lambda fault: fault.busy)[0] == faults
