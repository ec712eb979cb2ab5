"""Threads of real processes that use a core: in a stand-in of CUDA's driver, or in other code."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from grpo_doctor.hang.model.process.progress import spins_in
from grpo_doctor_probes.evidence import Locals, Look, Position
from grpo_doctor_probes.look.positions import positions
from grpo_doctor_probes.look.processes import look_at
from grpo_doctor_probes.look.pyspy import locals_digests
from grpo_doctor_probes.look.threads import SchedulerClock
from tests.spinning.stand_ins import COMPILER, StandIns, World, compiled

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
_OPENS = """
import ctypes, sys, time
cuda = ctypes.CDLL(sys.argv[1] + "/libcuda.so.1")
cuda.spinning_open((sys.argv[1] + "/devices").encode(), 0)
"""
SPINS = _OPENS + "cuda.cuLaunchHungKernel()\nprint(flush=True)\ncuda.cuStreamSynchronize()\n"
COUNTS = _OPENS + "print(flush=True)\nnumber = 0\nwhile True: number += 1\n"
# A step that is nearly all wait: it is met at its one line, with another number each time.
STEPS = (
    _OPENS
    + """
def train():
    step = 0
    while True:
        cuda.cuLaunchKernel(ctypes.c_uint64(20000)); step += 1; cuda.cuStreamSynchronize()
print(flush=True)
train()
"""
)


@pytest.fixture(scope="module")
def made() -> Iterator[StandIns]:
    with compiled() as program:
        yield program


@contextmanager
def running(made: StandIns, program: str) -> Iterator[int]:
    (made.folder / "devices").unlink(missing_ok=True)
    with (made.folder / "devices").open("wb") as file:
        file.truncate(ctypes.sizeof(World))
    words = [sys.executable, "-c", program, str(made.folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


def looks(pid: int) -> tuple[Look, Look]:
    """Two, between which it has used a core for a while."""
    made: list[Look] = []
    ticks = 0
    for _ in range(2):
        deadline = time.monotonic() + 30.0
        while True:
            process = look_at(pid, 0, SchedulerClock(Path("/proc")))
            if not made or process.cpu_ticks > ticks + 20 or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        ticks = process.cpu_ticks
        made.append(Look(process.at_ns, (process,)))
    return made[0], made[1]


def positions_of(pid: int) -> tuple[Position, ...]:
    before, after = looks(pid)
    return positions(before, after, at_most_s=5.0)


def test_a_host_that_spins_is_in_the_driver(made: StandIns) -> None:
    with running(made, SPINS) as pid:
        sampled = positions_of(pid)
    assert {position.problem for position in sampled} == {""}
    assert {position.caller for position in sampled} == {"libcuda.so.1"}
    assert spins_in(sampled) is True


def test_a_host_that_computes_is_not(made: StandIns) -> None:
    with running(made, COUNTS) as pid:
        sampled = positions_of(pid)
    assert len(sampled) == 3
    assert spins_in(sampled) is False


def test_variables_tell_a_loop_from_a_hang(made: StandIns) -> None:
    device_words = [str(made.device), str(made.folder / "devices")]
    with running(made, STEPS) as pid, subprocess.Popen(device_words) as device:
        moved = {row.digest for row in _digests(pid, apart_s=0.5)}
        device.kill()
    with running(made, SPINS) as pid:
        stood = {row.digest for row in _digests(pid, apart_s=0.5)}
    assert len(moved) > 1
    assert len(stood) == 1
    assert "" not in stood


def _digests(pid: int, *, apart_s: float) -> list[Locals]:
    digests: list[Locals] = []
    for _ in range(3):
        digests += locals_digests([pid], at_most_s=10.0)
        time.sleep(apart_s)
    assert not any(row.problem for row in digests)
    return digests
