"""What is kept of one file of the profiler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.importers.kineto.rank import MOST_RANKS, Range, RankFile, read_rank
from tests.unit.importers.kineto_files import (
    BASE_NS,
    CPU,
    STREAM,
    THREAD,
    annotation,
    complete,
    kernel,
    text_of,
    write,
)


def read(folder: Path, *events: dict[str, Any], name: str = "x.json", **head: Any) -> RankFile:
    return read_rank(write(folder / name, json.dumps({**head, "traceEvents": list(events)})))


@pytest.mark.parametrize(
    ("name", "distributed_info", "rank"),
    [
        ("x.json", {"rank": 3}, 3),
        ("rank5.json", {"rank": 3}, 3),
        ("rank5.json", {}, 5),
        ("rank5.json", {"rank": None, "world_size": 8}, 5),
        ("prof_RANK-12_x.json", None, 12),
        ("trank_7.json", None, 7),
        ("x.json", {}, None),
        ("x.json", None, None),
        ("x.json", {"rank": 0}, 0),
        ("x.json", {"rank": -1}, None),
        ("x.json", {"rank": MOST_RANKS - 1}, MOST_RANKS - 1),
        ("x.json", {"rank": MOST_RANKS}, None),
    ],
)
def test_the_rank_is_what_the_file_says_or_else_its_name(
    name: str, distributed_info: dict[str, Any] | None, rank: int | None, tmp_path: Path
) -> None:
    head = {} if distributed_info is None else {"distributedInfo": distributed_info}
    assert read(tmp_path, name=name, **head).rank == rank


@pytest.mark.parametrize(
    ("category", "name", "is_range"),
    [
        ("user_annotation", "anything", True),
        ("Operator", "Optimizer.step#AdamW.step", True),
        ("cpu_op", "enumerate(DataLoader)#x", True),
        ("cpu_op", "Optimizer.zero_grad#SGD.zero_grad", True),
        ("cpu_op", "aten::mm", False),
        ("python_function", "Optimizer.step#AdamW.step", False),
        ("gpu_user_annotation", "anything", False),
    ],
)
def test_ranges_are_those_that_users_marked_and_those_that_pytorch_marks_itself(
    category: str, name: str, is_range: bool, tmp_path: Path
) -> None:
    file = read(tmp_path, complete(category, name, 10.0, 5.0))
    assert file.ranges == ([Range(name, 10.0, 5.0, THREAD)] if is_range else [])
    assert file.steps == []


def test_steps_are_ranges_with_a_number(tmp_path: Path) -> None:
    file = read(
        tmp_path,
        complete("cpu_op", "ProfilerStep#7", 10.0, 5.0),
        annotation("ProfilerStep#x", 20.0, 5.0),
        annotation("ProfilerStep#8", 30.0, 5.0, pid="odd", tid="odd"),
    )
    assert file.steps == [
        Range("ProfilerStep#7", 10.0, 5.0, THREAD), Range("ProfilerStep#8", 30.0, 5.0, 0),
    ]  # fmt: skip
    assert (file.ranges, file.os_pid) == ([], 0)
    assert read(tmp_path, annotation("ProfilerStep#1", 1.0, 2.0)).os_pid == CPU


@pytest.mark.parametrize(
    ("change", "is_valid"),
    [
        ({}, True),
        ({"ph": "B"}, False),
        ({"ts": -1.0}, False),
        ({"ts": 0.0}, True),
        ({"ts": 4e15}, False),
        ({"dur": -1.0}, False),
        ({"dur": 4e15}, False),
        ({"dur": 0.0}, True),
    ],
)
def test_what_has_no_possible_time_or_is_no_whole_event_is_left_out(
    change: dict[str, Any], is_valid: bool, tmp_path: Path
) -> None:
    file = read(tmp_path, {**annotation("train", 10.0, 5.0), **change})
    assert bool(file.ranges) is is_valid
    assert file.events == 1


def test_ranges_are_linked_to_when_their_last_kernel_was_done(tmp_path: Path) -> None:
    def on_device(start_us: float, length_us: float, link: Any) -> dict[str, Any]:
        more = {"args": {"External id": link}}
        return complete("gpu_user_annotation", "train", start_us, length_us, **more)

    file = read(
        tmp_path,
        annotation("train", 10.0, 5.0, args={"External id": 4}),
        on_device(12.0, 9.0, 4), on_device(13.0, 1.0, 4), on_device(50.0, 1.0, "no number"),
    )  # fmt: skip
    assert file.ranges == [Range("train", 10.0, 5.0, THREAD, link=4)]
    assert file.done_us == {4: 21.0, 0: 51.0}


def test_kernels_and_copies_are_a_devices_work_and_communication_is_told_apart(
    tmp_path: Path,
) -> None:
    file = read(
        tmp_path,
        kernel("gemm", 1.0, 2.0),
        kernel("ncclDevKernel_AllReduce(x)", 5.0, 3.0),
        complete("gpu_memcpy", "Memcpy DtoH", 9.0, 1.0, pid=0),
        complete("Memset", "Memset", 11.0, 1.0, pid=0),
        complete("Kernel", "gemm", 13.0, 1.0, pid=0),
        kernel("gemm", 2.0, 2.0, device=3),
        complete("kernel", "gemm", 2.0, 2.0, pid="GPU"),
    )
    assert sorted(file.devices) == [0, 3]
    first = file.devices[0]
    assert first.everything.start_us.tolist() == [1.0, 5.0, 9.0, 11.0, 13.0, 2.0]
    assert first.everything.length_us.tolist() == [2.0, 3.0, 1.0, 1.0, 1.0, 2.0]
    assert first.communication.start_us.tolist() == [5.0]
    assert first.computation.start_us.tolist() == [1.0, 13.0, 2.0]


@pytest.mark.parametrize(
    ("arguments", "name", "group", "sequence"),
    [
        ({}, "ncclDevKernel_X", "", -1),
        ({"Collective name": "allreduce", "Seq": 5}, "allreduce", "", 5),
        ({"Process Group Name": "0", "Seq": 0}, "ncclDevKernel_X", "0", 0),
        (
            {"Process Group Name": "0", "Process Group Description": "dp", "Seq": "5"},
            "ncclDevKernel_X",
            "dp",
            -1,
        ),
    ],
)
def test_a_collective_is_called_as_the_file_calls_it(
    arguments: dict[str, Any], name: str, group: str, sequence: int, tmp_path: Path
) -> None:
    file = read(tmp_path, kernel("ncclDevKernel_X(args)", 5.0, 3.0, **arguments))
    (collective,) = file.collectives
    assert (collective.name, collective.group, collective.sequence) == (name, group, sequence)
    assert (collective.start_us, collective.length_us, collective.stream) == (5.0, 3.0, STREAM)


def test_times_are_since_what_the_file_says(tmp_path: Path) -> None:
    assert read_rank(write(tmp_path / "a.json", text_of([]))).base_ns == BASE_NS
    assert read(tmp_path, baseTimeNanoseconds=-5).base_ns == 0
    assert read(tmp_path, baseTimeNanoseconds=1 << 61).base_ns == 0
    assert read(tmp_path, baseTimeNanoseconds=(1 << 61) - 1).base_ns == (1 << 61) - 1
    assert read(tmp_path).base_ns == 0
