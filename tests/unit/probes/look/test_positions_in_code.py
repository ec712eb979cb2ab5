"""Which threads are stopped for a moment, and what is made of their registers and stacks."""

from __future__ import annotations

import struct
import sys
import time
from dataclasses import dataclass, field
from functools import partial

import pytest

from grpo_doctor_probes.evidence import Look, Position, ProcessLook, Thread
from grpo_doctor_probes.look.positions import positions
from grpo_doctor_probes.memory.access import Mapping

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


class Memory:
    def __init__(self, world: Traced, pid: int) -> None:
        assert pid == PID
        self._world = world

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, address: int, size: int) -> bytes:
        if size > self._world.stack_bytes:
            raise OSError("no memory there")
        assert address == STACK
        words = self._world.stack
        return struct.pack(f"<{len(words)}Q", *words).ljust(size, b"\0")


def mapping(name: str, start: int, rights: str = "r-xp") -> Mapping:
    return Mapping(start, start + 0x1000, rights, 0, 1, f"/usr/lib/{name}")


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Traced:
    """A process with a GPU's driver, all of whose threads are in it."""
    world = Traced(mappings=[mapping(name, start) for name, start in IN.items()])
    world.mappings.append(mapping("libcuda.so.1", DATA_OF_CUDA, "rw-p"))
    module = sys.modules["grpo_doctor_probes.look.positions"]  # its name is a function's as well
    for name in ("request", "stop_of", "registers"):
        monkeypatch.setattr(f"grpo_doctor_probes.look.registers._{name}", getattr(world, name))
    monkeypatch.setattr(module, "Memory", partial(Memory, world))
    monkeypatch.setattr(module, "mapped", lambda _: tuple(world.mappings))
    monkeypatch.setattr(module, "frozen", lambda _: "")
    monkeypatch.setattr(module, "why_not_thread", lambda *_: "")
    monkeypatch.setattr(module, "_BETWEEN_S", 0.0)
    monkeypatch.setattr("platform.machine", lambda: world.machine)
    return world


def look(at_ns: int, *threads: tuple[str, int], state: str = "R") -> Look:
    """State and ticks of each thread."""
    threads_read = tuple(
        Thread(PID + number, "python", letter, cpu_ticks=ticks)
        for number, (letter, ticks) in enumerate(threads)
    )
    return Look(at_ns, (ProcessLook(PID, at_ns, state, threads=threads_read),))


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


def test_what_was_not_there_at_both_looks_is_left_alone(traced: Traced) -> None:
    busy, empty, none = look(3 * S, BUSY), look(3 * S), Look(S, ())
    for before, after in ((none, busy), (empty, busy), (look(S, BUSY), empty)):
        assert positions(before, after, at_most_s=60.0) == ()
    # Of a thread that has come meanwhile nobody knows how much it has used of this time.
    before, after = look(S, ("S", 0)), look(3 * S, ("S", 0), ("R", 500))
    assert positions(before, after, at_most_s=60.0) == ()
    assert traced.seized == []


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


@pytest.mark.parametrize(
    ("error", "problem"),
    [(OSError(1, "Operation not permitted"), "Operation not permitted"), (OSError("lost"), "lost")],
)
def test_a_thread_that_may_not_be_traced_says_why(
    traced: Traced, monkeypatch: pytest.MonkeyPatch, error: OSError, problem: str
) -> None:
    traced.refused = error
    assert [(row.pid, row.tid, row.problem) for row in sampled(BUSY)] == [(PID, PID, problem)]

    def refuse(_: int) -> None:
        raise error

    monkeypatch.setattr(sys.modules["grpo_doctor_probes.look.positions"], "mapped", refuse)
    assert [(row.pid, row.tid, row.problem) for row in sampled(BUSY)] == [(PID, PID, problem)]


def test_a_thread_that_must_not_be_stopped_is_not(
    traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["grpo_doctor_probes.look.positions"]
    monkeypatch.setattr(module, "why_not_thread", lambda *_: "is in uninterruptible sleep")
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
    module = sys.modules["grpo_doctor_probes.look.positions"]
    monkeypatch.setattr(module, "frozen", lambda _: "/sys/fs/cgroup/x/cgroup.freeze")
    assert sampled(BUSY) == ()
    assert traced.seized == []


def test_without_time_nothing_is_stopped(traced: Traced) -> None:
    assert sampled(BUSY, at_most_s=-1.0) == ()
    assert traced.seized == []
