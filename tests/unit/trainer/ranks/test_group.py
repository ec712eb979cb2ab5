"""What a process knows of the others, and the collectives of the loop."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from grpo_doctor_trainer import ranks as group
from grpo_doctor_trainer.ranks import Ranks

ALONE = Ranks(rank=0, world_size=1, local_rank=0, device=torch.device("cpu"), threads=1)
ROWS = torch.tensor([[1.0, 2.0], [3.0, 4.0]])


def of_two(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    """Rank 0 of two; the other has ten times as much of everything, and rank 0's text."""

    def gather(every: list[torch.Tensor], mine: torch.Tensor) -> None:
        every[0].copy_(mine)
        every[1].copy_(mine * 10)

    def broadcast(texts: list[Any], **_: Any) -> None:
        texts[:] = [f"{texts[0]} of rank 0"]

    monkeypatch.setattr(dist, "all_gather", gather)
    monkeypatch.setattr(dist, "all_reduce", lambda values: values.mul_(11))
    monkeypatch.setattr(dist, "broadcast_object_list", broadcast)
    return replace(ALONE, world_size=2)


def test_a_rank_that_is_alone_asks_nobody() -> None:
    assert group.gather_rows(ROWS, ALONE).equal(ROWS)
    assert group.sum_over_ranks(ROWS, ALONE).equal(ROWS)
    assert group.from_main("folder", ALONE) == "folder"
    assert [group.worst_on_any_rank(failed, ALONE) for failed in (True, False)] == [True, False]


def test_two_ranks_join_rows_add_up_and_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = of_two(monkeypatch)
    assert group.gather_rows(ROWS, ranks).equal(torch.cat([ROWS, ROWS * 10]))
    assert group.sum_over_ranks(ROWS.clone(), ranks).equal(ROWS * 11)
    assert group.from_main("folder", ranks) == "folder of rank 0"
    assert [group.worst_on_any_rank(failed, ranks) for failed in (True, False)] == [True, False]


TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}


@pytest.mark.parametrize(
    ("environment", "numbers", "threads"),
    [
        ({}, (0, 1, 0), 12),
        (TORCHRUN | {"LOCAL_WORLD_SIZE": "4"}, (5, 8, 1), 3),
        (TORCHRUN | {"LOCAL_SIZE": "2"}, (5, 8, 1), 6),
        (TORCHRUN, (5, 8, 1), 1),
        (TORCHRUN | {"LOCAL_WORLD_SIZE": "16"}, (5, 8, 1), 1),
        (TORCHRUN | {"LOCAL_WORLD_SIZE": "4", "OMP_NUM_THREADS": "7"}, (5, 8, 1), None),
    ],
    ids=["no launcher", "torchrun", "DeepSpeed", "no local size", "more than cores", "user's own"],
)
def test_ranks_share_the_cores_of_their_machine(
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    numbers: tuple[int, int, int],
    threads: int | None,
) -> None:
    variables = (*TORCHRUN, "LOCAL_WORLD_SIZE", "LOCAL_SIZE", "OMP_NUM_THREADS", "DS_ACCELERATOR")
    for name in variables:
        monkeypatch.setenv(name, "")  # so that it is put back behind the test
        monkeypatch.delenv(name)
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "unused")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    limits: list[int] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)))
    monkeypatch.setattr(torch, "set_num_threads", limits.append)
    monkeypatch.setattr(dist, "init_process_group", lambda *_, **__: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    ranks = group.join_ranks(60)
    assert (ranks.rank, ranks.world_size, ranks.local_rank) == numbers
    assert limits == ([] if threads is None else [threads])


@pytest.mark.parametrize("has_gpu", [False, True])
def test_ranks_talk_over_nccl_on_gpus_and_over_gloo_elsewhere(
    monkeypatch: pytest.MonkeyPatch, has_gpu: bool
) -> None:
    for name, value in (TORCHRUN | {"LOCAL_WORLD_SIZE": "4", "OMP_NUM_THREADS": "1"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DS_ACCELERATOR", "")
    joined: list[Any] = []
    monkeypatch.setattr(
        dist, "init_process_group", lambda backend, **more: joined.append((backend, more))
    )
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    ranks = group.join_ranks(60)
    mine = torch.device("cuda", 1)
    assert ranks.device == (mine if has_gpu else torch.device("cpu"))
    assert chosen == ([mine] if has_gpu else [])
    assert joined == [
        (
            "nccl" if has_gpu else "gloo",
            {"timeout": timedelta(seconds=60), "device_id": mine if has_gpu else None},
        )
    ]
    assert os.environ["DS_ACCELERATOR"] == ("" if has_gpu else "cpu")


def test_a_phase_ends_when_the_gpu_has_done_what_it_was_asked_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    group.settle(torch.device("cpu"))
    assert waited == []
    group.settle(torch.device("cuda", 1))
    assert waited == [torch.device("cuda", 1)]
