"""Which process is on which GPU."""

from __future__ import annotations

import pytest

from grpo_doctor_probes.evidence import GpuHolder, GpuLook
from grpo_doctor_probes.look.gpus import Process, with_holders


def gpus(*pids: tuple[int, ...]) -> tuple[GpuLook, ...]:
    return tuple(GpuLook(index, 1, pids=on, uuid=f"GPU-{index}a") for index, on in enumerate(pids))


def placed(looks: tuple[GpuLook, ...], *of_job: Process, ours: bool = True) -> list[list[str]]:
    """`pid:how` of the holders of each GPU."""
    found = with_holders(looks, of_job, ours=ours)
    return [[f"{holder.pid}:{holder.how}" for holder in gpu.holders] for gpu in found]


def test_by_the_drivers_process_numbers() -> None:
    assert placed(gpus((7, 99), (8,)), Process(7), Process(8)) == [["7:pid"], ["8:pid"]]


def test_a_context_on_gpu_0_by_mistake_does_not_move_a_rank() -> None:
    ranks = [Process(7, local_rank=0), Process(8, local_rank=1)]
    assert placed(gpus((7, 8), (8,)), *ranks) == [["7:pid"], ["8:pid"]]
    # Without an environment both GPUs are named.
    assert placed(gpus((7, 8), (8,)), Process(8)) == [["8:pid"], ["8:pid"]]


def test_numbers_of_another_name_space() -> None:
    inner = Process(5007, numbers=(7,))
    assert placed(gpus((7,), ()), inner) == [["5007:nspid"], []]
    # In a container of our own the driver's numbers are not ours, whatever they look like.
    assert placed(gpus((7,), ()), Process(7, local_rank=1), ours=False) == [[], ["7:visible"]]


@pytest.mark.parametrize(
    ("visible", "place", "index"),
    [
        (None, 1, 1),
        (None, 5, None),
        ("2,0", 0, 2),
        ("2,0", 1, 0),
        ("2", 3, 2),  # one GPU for each process, as Ray gives them
        ("GPU-1a", 0, 1),
        ("GPU-1a,GPU-0a", 1, 0),
        ("GPU-", 0, None),
        ("", 0, None),
        ("MIG-7", 0, None),
    ],
)
def test_by_what_a_process_may_use(visible: str | None, place: int, index: int | None) -> None:
    found = placed(gpus((), (), ()), Process(7, visible=visible, local_rank=place))
    assert found == [["7:visible"] if index == number else [] for number in range(3)]


def test_of_a_process_whose_environment_is_hidden_nothing_is_known() -> None:
    assert placed(gpus((), ()), Process(7)) == [[], []]


def test_holders_are_of_the_job_alone() -> None:
    (gpu,) = with_holders(gpus((7, 8)), [Process(7)], ours=True)
    assert (gpu.pids, gpu.holders) == ((7, 8), (GpuHolder(7, "pid"),))
