"""Whether a process waits for its GPU: it spins beside it, or sleeps in its driver."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor_probes.evidence import Position
from tests.evidence import FIRST_NS
from tests.unit.hang.model.process.procs import OTHER, PID, of, proc, subject, thread
from tests.verdicts import REWARD

CUDA, PYTHON_CODE = "libcuda.so.1", "libpython3.11.so.1.0"


def position(library: str, tid: int = PID) -> Position:
    return Position(PID, tid, FIRST_NS, library, library)


@pytest.mark.parametrize(
    ("share", "nccl", "positions", "spins"),
    [
        (0.9, True, (), True),
        (0.9, False, (), False),
        (0.0, True, (), False),
        (0.9, True, (position(PYTHON_CODE),), False),  # it was seen to compute
        (0.9, True, (position(PYTHON_CODE, OTHER),), True),
        (0.9, True, (position(CUDA),), True),
        (0.9, False, (position(CUDA),), True),
    ],
)
def test_who_burns_a_core_beside_threads_of_nccl_may_wait_for_its_gpu(
    share: float, nccl: bool, positions: tuple[Position, ...], spins: bool
) -> None:
    build, process = subject(REWARD, cpu_share=share)
    thread(process, OTHER, (), "pt_nccl_watchdg" if nccl else "python")
    build.elsewhere(0, REWARD)  # nobody waits for it
    assert proc(build, positions=positions).spins is spins


def test_who_was_not_seen_does_not_spin() -> None:
    build, _ = subject()
    evidence = build.build()
    rows = tuple(process for process in evidence.looks[1].processes if process.pid != PID)
    assert not of(
        replace(evidence, looks=(evidence.looks[0], replace(evidence.looks[1], processes=rows)))
    ).spins


@pytest.mark.parametrize(
    ("target", "wakes", "share", "tid", "device_wait"),
    [
        ("/dev/nvidia0", 0, 0.0, PID, True),
        ("/dev/nvidia0", 6, 0.0, PID, True),
        ("/dev/nvidia0", 0, 0.9, PID, False),
        ("/dev/nvidia0", 0, 0.0, OTHER, False),
        ("/data/rows", 0, 0.0, PID, False),
    ],
)
def test_who_sleeps_in_the_driver_waits_for_its_device(
    target: str, wakes: int, share: float, tid: int, device_wait: bool
) -> None:
    build, process = subject(REWARD, wakes=wakes, cpu_share=share)
    process.blocks("file", target, tid=tid)
    assert proc(build).device_wait is device_wait
