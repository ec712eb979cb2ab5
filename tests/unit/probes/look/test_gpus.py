"""Which process is on which GPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor_probes.evidence import GpuLook, Job, Member, Role
from grpo_doctor_probes.gpu.process import EndedError
from grpo_doctor_probes.look.gpus import Process, with_holders
from tests.unit.probes.conftest import FakeChild
from tests.unit.probes.discover.fakeproc import FakeProc

module = import_module("grpo_doctor_probes.look.gpus")


def gpus(*pids: tuple[int, ...]) -> tuple[GpuLook, ...]:
    return tuple(GpuLook(index, 1, pids=on, uuid=f"GPU-{index}a") for index, on in enumerate(pids))


def placed(looks: tuple[GpuLook, ...], *of_job: Process, ours: bool = True) -> list[list[int]]:
    """Return the holders of each GPU."""
    placed_looks = with_holders(looks, of_job, ours=ours)
    return [[holder.pid for holder in gpu.holders] for gpu in placed_looks]


def test_a_context_on_gpu_0_by_mistake_does_not_move_a_rank() -> None:
    ranks = [Process(7, local_rank=0), Process(8, local_rank=1)]
    assert placed(gpus((7, 8), (8,)), *ranks) == [[7], [8]]
    # Without an environment both GPUs are named.
    assert placed(gpus((7, 8), (8,)), Process(8)) == [[8], [8]]


def test_numbers_of_another_name_space() -> None:
    inner = Process(5007, numbers=(7,))
    assert placed(gpus((7,), ()), inner) == [[5007], []]
    # In a container of our own the driver's numbers are not ours, whatever they look like.
    assert placed(gpus((7,), ()), Process(7, local_rank=1), ours=False) == [[], [7]]


@pytest.mark.parametrize(
    ("visible", "local_rank", "index"),
    [
        (None, 1, 1),
        (None, 5, None),
        ("2,0", 0, 2),
        ("2,0", 1, 0),
        ("2,0", 2, None),
        ("2", 3, 2),  # one GPU for each process, as Ray gives them
        ("GPU-1a", 0, 1),
        ("GPU-1a,GPU-0a", 1, 0),
        ("GPU-", 0, None),
        ("", 0, None),
        ("MIG-7", 0, None),
    ],
)
def test_by_what_a_process_may_use(visible: str | None, local_rank: int, index: int | None) -> None:
    placement = placed(gpus((), (), ()), Process(7, visible=visible, local_rank=local_rank))
    assert placement == [[7] if index == number else [] for number in range(3)]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeChild]:
    """Makes the next child say these lines, and then fall silent, or with `ends` end."""

    def say(*lines: dict[str, object], ends: bool = False) -> FakeChild:
        child = FakeChild(*map(json.dumps, lines), *([EndedError()] if ends else []))
        monkeypatch.setattr(module, "Child", child)
        monkeypatch.setattr(module, "MOST_S", 600.0)  # the machine may stall
        return child

    return say


COUNT: dict[str, object] = {"count": 2}
END: dict[str, object] = {"end": True}


def ask(index: int | None = None) -> dict[str, object]:
    return {"asks": "nvmlInit"} if index is None else {"asks": f"GPU {index}", "index": index}


def numbers(index: int) -> dict[str, object]:
    return {"gpu": {"index": index, "at_ns": 5, "pids": [7], "throttle_bits": 0x24}}


def test_what_all_gpus_say(answers: Callable[..., FakeChild]) -> None:
    child = answers(
        ask(), COUNT, ask(0), numbers(0), {"more": 0, "sm_active_pct": 12.5}, END, numbers(3)
    )
    assert module.gpus(answer_s=2.0) == (
        GpuLook(
            0, 5, pids=(7,), throttled_by=("power cap", "temperature (software)"),
            sm_active_pct=12.5,
        ),
    )  # fmt: skip
    assert child.left
    assert child.requests == ["look"]
    # The start may take longer than an answer.
    assert 2.0 < child.waits[0] <= module.STARTS_S
    assert child.waits[1:] == [2.0] * 5


@pytest.mark.parametrize(
    ("questions", "ends", "silent"),
    [
        ([ask(), ask(1)], False, [(1, "GPU 1", "D")]),
        ([ask()], False, [(module.ALL_GPUS, "nvmlInit", "D")]),
        ([], False, []),  # it was kept from asking by this host
        ([ask(), ask(1)], True, []),
        ([ask(), {"none": "no driver"}, ask(1)], False, []),
        ([ask(), END, ask(1)], False, []),
    ],
)
def test_a_driver_that_does_not_answer(
    answers: Callable[..., FakeChild], questions: list[Any], ends: bool, silent: list[Any]
) -> None:
    child = answers(*questions, ends=ends)
    looks = module.gpus()
    assert [(gpu.index, gpu.silent_call, gpu.silent_state) for gpu in looks] == silent
    assert all(gpu.silent_s is not None and gpu.silent_s >= 0 for gpu in looks)
    assert child.left


def test_a_host_that_starts_no_child_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(module, "Child", refuse)
    assert module.gpus() == ()
    assert module.gpu_count() == 0


@pytest.mark.parametrize(
    ("role", "environment", "local_rank", "visible"),
    [
        ("rank", {"LOCAL_RANK": 2, "CUDA_VISIBLE_DEVICES": "4,5"}, None, ("4,5", 2)),
        ("rank", {"LOCAL_RANK": 2}, 1, (None, 1)),
        ("rank", {"LOCAL_RANK": "x", "CUDA_VISIBLE_DEVICES": ""}, None, ("", None)),
        ("rank", {"HOME": "/"}, 0, (None, 0)),
        ("rank", {}, 1, (None, None)),  # hidden from us
        ("engine", {"LOCAL_RANK": 2, "CUDA_VISIBLE_DEVICES": "4,5"}, None, (None, None)),
        ("engine-worker", {"CUDA_VISIBLE_DEVICES": "4"}, 1, (None, None)),
        ("helper", {"LOCAL_RANK": 2}, 0, None),
    ],
)
def test_what_is_known_of_where_a_process_computes(
    tmp_path: Path,
    role: Role,
    environment: dict[str, object],
    local_rank: int | None,
    visible: tuple[str | None, int | None] | None,
) -> None:
    """Engines set both again once they run."""
    FakeProc(tmp_path).add(7, 1, "python x", environment)
    member = Member(7, 1, 0, role, "python", "python x", local_rank=local_rank)
    processes = module.processes(Job("here", (member,)), tmp_path)
    expected = () if visible is None else (Process(7, visible=visible[0], local_rank=visible[1]),)
    assert processes == expected
