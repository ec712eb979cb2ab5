"""Threads that use a core: in a driver or in other code, of real processes and made-up ones."""

from __future__ import annotations

import ctypes
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from grpo_doctor.hang.model.process.progress import spins_in
from grpo_doctor_probes.evidence import Locals, Look, Position, ProcessLook, Thread
from grpo_doctor_probes.look.positions import positions
from grpo_doctor_probes.look.processes import SchedulerClock, look_at
from grpo_doctor_probes.look.pyspy import locals_digests
from grpo_doctor_probes.memory.access import Mapping
from tests.spinning.stand_ins import COMPILER, StandIns, World, compiled
from tests.unit.probes.conftest import running as started

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
    with started(sys.executable, "-c", program, str(made.folder)) as process:
        yield process.pid


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


@pytest.mark.parametrize(("program", "spins"), [(SPINS, True), (COUNTS, False)])
def test_a_host_that_spins_is_in_the_driver_and_one_that_computes_is_not(
    made: StandIns, program: str, spins: bool
) -> None:
    with running(made, program) as pid:
        sampled = positions(*looks(pid), at_most_s=5.0)
    assert {position.problem for position in sampled} == {""}
    assert ({position.caller for position in sampled} == {"libcuda.so.1"}) is spins
    assert spins or len(sampled) == 3
    assert spins_in(sampled) is spins


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


MODULE = sys.modules["grpo_doctor_probes.look.positions"]  # its name is a function's as well
PID = 70
SEIZE, DETACH = 0x4206, 17
S = 1_000_000_000
STACK = 0x7FF000
_FIRST_CODE = 0x10000
_LIBRARIES = ("python3.11", "libc.so.6", "libpthread.so.0", "libtorch.so", "libcuda.so.1")
IN = {name: _FIRST_CODE * (at + 1) for at, name in enumerate(_LIBRARIES)}
OF_CUDA = IN["libcuda.so.1"]
HEAP, DATA_OF_CUDA = 0x900000, 0xA00000


@dataclass
class Traced:
    """Threads that stop at once. By tid: where each is, and what is on top of its stack."""

    at: dict[int, int] = field(default_factory=dict)
    stack: tuple[int, ...] = ()
    stack_bytes: int = 2048  # that can be read
    stop: int | None = 0  # the signal that they stop for
    refused: OSError | None = None
    seized: list[int] = field(default_factory=list)
    delivered: list[int] = field(default_factory=list)
    mappings: list[Mapping] = field(default_factory=list)
    machine: str = "x86_64"

    def request(self, request: int, tid: int, _: int = 0, data: int = 0) -> None:
        if self.refused is not None:
            raise self.refused
        if request == SEIZE:
            self.seized.append(tid)
        elif request == DETACH:
            self.delivered.append(data)

    def stop_of(self, _: int, deadline: float) -> int | None:
        assert 0 < deadline - time.monotonic() < 60
        return self.stop

    def memory(self, pid: int) -> nullcontext[Traced]:
        assert pid == PID
        return nullcontext(self)

    def read(self, address: int, size: int) -> bytes:
        if size > self.stack_bytes:
            raise OSError("no memory there")
        assert address == STACK
        return struct.pack(f"<{len(self.stack)}Q", *self.stack).ljust(size, b"\0")

    def registers(self, tid: int) -> bytes:
        """As this machine has them."""
        at = self.at.get(tid, OF_CUDA)
        if self.machine == "aarch64":
            registers = [0] * 34
            registers[30:33] = IN["libtorch.so"] + 4, STACK, at
        else:
            registers = [0] * 27
            registers[16], registers[19] = at, STACK
        return struct.pack(f"<{len(registers)}Q", *registers)


def mapping(name: str, start: int, rights: str = "r-xp") -> Mapping:
    return Mapping(start, start + 0x1000, rights, 0, 1, f"/usr/lib/{name}")


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Traced:
    """A process with a GPU's driver, all of whose threads are in it."""
    world = Traced(mappings=[mapping(name, start) for name, start in IN.items()])
    world.mappings.append(mapping("libcuda.so.1", DATA_OF_CUDA, "rw-p"))
    for name in ("request", "stop_of", "registers"):
        monkeypatch.setattr(MODULE, f"_{name}", getattr(world, name))
    monkeypatch.setattr(MODULE, "Memory", world.memory)
    monkeypatch.setattr(MODULE, "mapped", lambda _: tuple(world.mappings))
    monkeypatch.setattr(MODULE, "frozen", lambda _: "")
    monkeypatch.setattr(MODULE, "why_not_thread", lambda *_: "")
    monkeypatch.setattr(MODULE, "_BETWEEN_S", 0.0)
    monkeypatch.setattr("platform.machine", lambda: world.machine)
    return world


def look(at_ns: int, *threads: tuple[str, int]) -> Look:
    """State and ticks of each thread."""
    threads_read = tuple(
        Thread(PID + number, "python", letter, cpu_ticks=ticks)
        for number, (letter, ticks) in enumerate(threads)
    )
    return Look(at_ns, (ProcessLook(PID, at_ns, "R", threads=threads_read),))


def sampled(*threads: tuple[str, int], at_most_s: float = 60.0) -> tuple[Position, ...]:
    """Of threads that have used so many ticks in the two seconds between two looks."""
    before = look(S, *((state, 1000) for state, _ in threads))
    after = look(3 * S, *((state, 1000 + ticks) for state, ticks in threads))
    return positions(before, after, at_most_s=at_most_s)


BUSY = ("R", 200)


@pytest.mark.parametrize(
    ("threads", "chosen"),
    [
        ([("R", 0)], [70]),
        ([("S", 20)], []),  # a tenth of a core
        ([("S", 21)], [70]),
        ([("S", 0), ("S", 60)], [71]),  # three tenths
        ([("S", 0), ("R", 59)], []),
        ([("S", 200), ("S", 80), ("S", 200)], [70, 72, 71]),
        ([("S", 0), ("S", 80), ("S", 90), ("S", 70), ("S", 100)], [74, 72, 71]),
    ],
)
def test_the_main_thread_and_the_busiest_others_are_sampled(
    traced: Traced, threads: list[tuple[str, int]], chosen: list[int]
) -> None:
    assert [position.tid for position in sampled(*threads)] == chosen * 3
    assert traced.seized == chosen * 3


@pytest.mark.parametrize(
    ("at", "stack", "library", "caller"),
    [
        (OF_CUDA, (), "libcuda.so.1", "libcuda.so.1"),
        (IN["libtorch.so"], (OF_CUDA,), "libtorch.so", "libtorch.so"),
        (IN["libc.so.6"], (OF_CUDA,), "libc.so.6", "libcuda.so.1"),
        (
            IN["libc.so.6"],
            (IN["libpthread.so.0"], HEAP, 0, IN["libtorch.so"] + 8, OF_CUDA),
            "libc.so.6",
            "libtorch.so",
        ),
        (IN["libc.so.6"], (DATA_OF_CUDA, IN["libc.so.6"]), "libc.so.6", ""),
        (HEAP, (OF_CUDA,), "", "libcuda.so.1"),  # compiled at run time
        (OF_CUDA + 0xFFF, (), "libcuda.so.1", "libcuda.so.1"),
        (OF_CUDA + 0x1000, (), "", ""),
    ],
)
def test_in_which_library_it_is_and_which_called_the_systems(
    traced: Traced, at: int, stack: tuple[int, ...], library: str, caller: str
) -> None:
    traced.at[PID], traced.stack = at, stack
    first, *later = sampled(BUSY)
    assert (first.pid, first.tid, first.problem) == (PID, PID, "")
    assert (first.library, first.caller) == (library, caller)
    assert 0 <= first.pause_ms < 60_000
    assert len(later) == 2


@pytest.mark.parametrize(
    ("machine", "caller"), [("x86_64", "libcuda.so.1"), ("aarch64", "libtorch.so")]
)
def test_a_function_that_calls_none_returns_by_the_link_register_on_arm(
    traced: Traced, machine: str, caller: str
) -> None:
    traced.machine, traced.stack = machine, (OF_CUDA,)
    traced.at[PID] = IN["libc.so.6"]
    assert {position.caller for position in sampled(BUSY)} == {caller}


@pytest.mark.parametrize(
    ("stop", "problem"),
    [
        (0, ""),
        (10, ""),  # without it the signal would be lost
        (None, "it did not stop in time"),
    ],
)
def test_how_a_thread_stops(traced: Traced, stop: int | None, problem: str) -> None:
    traced.stop = stop
    assert sampled(BUSY, BUSY)[0].problem == problem
    # One that has not stopped yet must not be asked for anything else.
    assert traced.delivered == ([] if stop is None else [stop] * 6)
    assert traced.seized == ([PID] if problem else [PID, PID + 1] * 3)


def test_a_thread_that_must_not_be_stopped_is_not(
    traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULE, "why_not_thread", lambda *_: "is in uninterruptible sleep")
    (position,) = sampled(BUSY, BUSY)
    assert (position.tid, position.problem) == (PID, "it is in uninterruptible sleep")
    assert traced.seized == []


def test_a_process_without_a_driver_or_frozen_is_left_alone(
    traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_driver, without = list(traced.mappings), traced.mappings[:4]
    traced.mappings[:] = without
    assert sampled(BUSY) == ()
    traced.mappings[:] = with_driver
    monkeypatch.setattr(MODULE, "frozen", lambda _: "/sys/fs/cgroup/x/cgroup.freeze")
    assert sampled(BUSY) == ()
    assert traced.seized == []
