"""The world keeps NCCL's rules, the scorer knows right from wrong, and a few whole cases."""

from __future__ import annotations

import ctypes
import mmap
import pickle
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor_probes.procs.procstat import state_of
from tests.spinning import recordings
from tests.spinning.cases import CASES
from tests.spinning.run import judged, run_case
from tests.spinning.stand_ins import (
    COLLECTIVE,
    COMPILER,
    HUNG_KERNEL,
    KERNEL,
    StandIns,
    World,
    compiled,
)
from tests.spinning.world import Bench, bench, struck

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")


@pytest.fixture(scope="module")
def stand_ins() -> Iterator[StandIns]:
    with compiled() as libraries:
        yield libraries


class Devices:
    """The devices of two ranks, whose hosts are played by the test."""

    def __init__(self, stand_ins: StandIns, folder: Path) -> None:
        self.path = folder / "devices"
        self.path.write_bytes(bytes(ctypes.sizeof(World)))
        with self.path.open("r+b") as file:
            self._mapped = mmap.mmap(file.fileno(), 0)
        self.world = World.from_buffer(self._mapped)
        self.world.members[0] = 0b11
        self.program = subprocess.Popen([str(stand_ins.device), str(self.path)])

    def enqueue(self, rank: int, kind: int, seconds: float = 0.0) -> None:
        queue = self.world.queues[rank]
        operation = queue.operations[queue.enqueued]
        operation.kind, operation.microseconds = kind, int(seconds * 1e6)
        if kind == COLLECTIVE:
            queue.called[0] += 1
            operation.sequence = queue.called[0]
        queue.enqueued += 1

    def finished(self, rank: int, expected: int, within_s: float = 10.0) -> int:
        deadline = time.monotonic() + within_s
        while self.world.queues[rank].finished < expected and time.monotonic() < deadline:
            time.sleep(0.005)
        return int(self.world.queues[rank].finished)


@pytest.fixture
def devices(stand_ins: StandIns, tmp_path: Path) -> Iterator[Devices]:
    pair = Devices(stand_ins, tmp_path)
    yield pair
    pair.program.kill()
    pair.program.wait()


@needs_compiler
def test_a_collective_ends_when_all_have_come_to_it(devices: Devices) -> None:
    devices.enqueue(0, COLLECTIVE)
    devices.enqueue(1, KERNEL, 0.05)
    assert devices.finished(1, 1) == 1
    assert devices.finished(0, 1, within_s=0.1) == 0
    devices.enqueue(1, COLLECTIVE)
    assert (devices.finished(0, 1), devices.finished(1, 2)) == (1, 2)


@needs_compiler
def test_what_is_queued_behind_a_hung_kernel_waits(devices: Devices) -> None:
    for kind in (HUNG_KERNEL, COLLECTIVE):
        devices.enqueue(0, kind)
    devices.enqueue(1, COLLECTIVE)
    assert devices.finished(1, 1, within_s=0.2) == 0
    assert devices.finished(0, 1, within_s=0.1) == 0


@needs_compiler
def test_over_dead_links_nothing_ends(devices: Devices) -> None:
    devices.world.broken_groups = 1
    for rank in (0, 1):
        devices.enqueue(rank, COLLECTIVE)
    assert devices.finished(0, 1, within_s=0.2) == 0
    devices.world.broken_groups = 0
    assert devices.finished(0, 1) == 1


@needs_compiler
def test_a_recording_tells_what_is_done(devices: Devices) -> None:
    for rank in (0, 1):
        devices.enqueue(rank, COLLECTIVE)
    assert devices.finished(0, 1) == 1
    devices.enqueue(0, COLLECTIVE)
    world = recordings.read_world(devices.path)
    dump = recordings.recording(world.queues[0], 2)
    assert [entry["state"] for entry in dump["entries"]] == ["completed", "scheduled"]
    assert {entry["time_discovered_started_ns"] for entry in dump["entries"]} == {None}
    status = dump["pg_status"]["0"]
    assert (status["last_enqueued_collective"], status["last_completed_collective"]) == (2, 1)
    assert pickle.loads(pickle.dumps(dump)) == dump


def answer(state: str, cause: str, *culprits: int) -> dict[str, Any]:
    verdict = {
        "state": state, "class": cause, "culprits": list(culprits), "confidence": 0.9,
        "summary": "",
    }  # fmt: skip
    return {"verdict": verdict, "cost": {"max_pause_ms": 0.1}}


@pytest.mark.parametrize(
    ("case", "answer", "right"),
    [
        ("stopped", answer("stuck", "rank-stopped", 1), (True, True, True)),
        ("stopped", answer("slow", "rank-stopped", 1), (False, True, True)),
        ("stopped", answer("stuck", "rank-stopped", 1, 2), (True, False, True)),
        ("stopped", answer("healthy", ""), (False, False, False)),
        ("links dead, all in barrier of sync", answer("slow", "unknown"), (True, True, True)),
        ("links dead, all in barrier of sync", answer("healthy", ""), (False, True, False)),
        ("links dead, all in barrier of sync", answer("stuck", "unknown", 0), (True, False, True)),
        ("checkpoint on one", answer("slow", "storage-blocked", 1), (True, True, True)),
        ("checkpoint on one", answer("stuck", "storage-blocked", 1), (False, True, True)),
        ("checkpoint on one", answer("slow", "storage-blocked", 0), (True, False, True)),
    ],
)
def test_answers_are_held_to_the_truth(
    case: str, answer: dict[str, Any], right: tuple[bool, bool, bool]
) -> None:
    result = judged(CASES[case], 0, 3, 1, answer, 1.0)
    assert (result.state_right, result.ranks_right, result.class_right) == right


def test_there_are_ways_enough() -> None:
    truths = [case.truth for case in CASES.values()]
    assert truths.count("dead") >= 20
    assert len(truths) - truths.count("dead") >= 10


@pytest.fixture(scope="module")
def server() -> Iterator[Bench]:
    with bench() as ready:
        yield ready


@needs_compiler
@pytest.mark.slow
def test_hosts_spin_and_devices_stand(server: Bench) -> None:
    case = CASES["links dead, all in item of update"]
    with struck(server, replace(case, age_s=1.0), seed=0) as job:
        before = job.progress()
        states = []
        for _ in range(5):
            time.sleep(0.1)
            states += [state_of(f"/proc/{pid}") for pid in job.pids.values()]
        assert job.progress() == before
        assert states.count("R") == len(states)


@needs_compiler
@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.parametrize("name", ["healthy, fast", "links dead, all in item, torch 2.5"])
def test_a_whole_case(server: Bench, name: str) -> None:
    result = run_case(server, CASES[name], seed=1)
    assert result.state_right, result
