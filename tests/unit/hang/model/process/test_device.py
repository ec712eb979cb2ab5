"""Whether a host that uses a core at one line computes, or waits for its device."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.model import view
from grpo_doctor.hang.model.process.proc import index
from grpo_doctor.hang.model.process.progress import is_device_library, spins_in
from grpo_doctor.hang.model.view import Process
from grpo_doctor_probes.evidence import Evidence, Position
from tests.evidence import FIRST_NS, EvidenceBuilder, frames

ITEM = frames("compute_loss /home/me/train.py:5", "main /home/me/train.py:9")


def at(*callers: str, tid: int = 100, library: str = "") -> tuple[Position, ...]:
    return tuple(Position(100, tid, FIRST_NS, library or name, name) for name in callers)


def kind(evidence: Evidence) -> str:
    return index(evidence)[100].activity.kind


def proc(evidence: Evidence) -> Process:
    return view.build(evidence).by_rank[0]


def test_a_wait_asleep_in_the_driver_is_one_for_the_device() -> None:
    build = EvidenceBuilder(ranks=1)
    build.rank(0).stack = ITEM
    build.rank(0).blocks("poll", "/dev/nvidia0")
    assert proc(build.build()).device_wait


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("libcuda.so.1", True),
        ("libcuda.so.535.104.05", True),
        ("libcudart-1f3a.so.12", True),
        ("libcudart.so.12", True),
        ("libnccl.so.2", True),
        ("libamdhip64.so.6", True),
        ("libcublas.so.12", False),
        ("libnvidia-ptxjitcompiler.so.1", False),
        ("libcudnn.so.9", False),
        ("libtorch_cuda.so", False),
        ("libpython3.11.so.1.0", False),
    ],
)
def test_drivers_are_known_by_their_files(name: str, expected: bool) -> None:
    assert is_device_library(name) is expected


def position(library: str = "", caller: str = "", problem: str = "") -> Position:
    return Position(100, 100, FIRST_NS, library, caller, problem=problem)


DRIVER, CODE = "libcuda.so.1", "libopenblas.so"


@pytest.mark.parametrize(
    ("positions", "spins"),
    [
        ((), None),
        ((position(problem="refused"),), None),
        ((position(),), None),
        ((position(DRIVER, problem="refused"),), None),
        ((position(DRIVER),), True),  # without its callers
        ((position(caller=DRIVER),), True),
        ((position("libc.so.6", DRIVER),), True),
        ((position(DRIVER, CODE),), False),
        ((position(DRIVER), position(CODE)), False),  # who launches kernels is there as well
        ((position(DRIVER), position(DRIVER), position(CODE)), True),
        ((position(DRIVER), position(CODE), position(problem="refused"), position()), False),
    ],
)
def test_whether_a_thread_was_mostly_in_a_driver(
    positions: tuple[Position, ...], spins: bool | None
) -> None:
    assert spins_in(positions) is spins
