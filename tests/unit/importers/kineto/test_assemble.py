"""Rows, processes and devices of the profiler's files, on one clock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpo_doctor.importers.kineto.load import load
from grpo_doctor.trace.model import Kind, Trace
from tests.unit.importers.kineto_files import BASE_NS, THREAD, annotation, kernel, write

STEP = annotation("ProfilerStep#3", 1000.0, 900.0)


def trace_of(folder: Path, *events: dict[str, Any], name: str = "x.json", **head: Any) -> Trace:
    document = {"baseTimeNanoseconds": BASE_NS, **head}
    return load(write(folder / name, json.dumps({**document, "traceEvents": list(events)})))


def rows(trace: Trace, kind: Kind) -> list[tuple[str, float, float, int]]:
    """Name, begin and end in microseconds, and depth of each row of a kind."""
    spans = trace.spans
    chosen = np.flatnonzero(spans.kind == kind).tolist()
    return [
        (
            trace.names[spans.name[row]],
            int(spans.start_ns[row]) / 1000,
            int(spans.end_ns[row]) / 1000,
            int(spans.depth[row]),
        )
        for row in chosen
    ]


def test_the_trace_begins_with_the_first_thing_in_it(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, STEP, annotation("train", 1100.0, 200.0), kernel("gemm", 950.0, 9.0))
    assert trace.run.started_unix_ns == BASE_NS + 950_000
    assert rows(trace, Kind.STEP) == [("step", 50.0, 950.0, 0)]
    assert rows(trace, Kind.SPAN) == [("train", 150.0, 350.0, 1)]
    assert trace.spans.value[trace.spans.kind == Kind.STEP].tolist() == [3.0]
    assert trace.run.duration_ns == 950_000
    (process,) = trace.processes
    assert (process.start_ns, process.end_ns, process.pid) == (0, 950_000, 1000)
    assert (process.os_pid, process.local_rank, process.clock.error_ns) == (4000, 0, 0)


def test_files_of_several_clocks_are_put_where_their_hosts_said(tmp_path: Path) -> None:
    for rank, base_ns in ((0, BASE_NS), (1, BASE_NS + 5000)):
        head = {"baseTimeNanoseconds": base_ns, "distributedInfo": {"rank": rank}}
        text = json.dumps({**head, "traceEvents": [STEP]})
        write(tmp_path / f"node{rank}_12.34.pt.trace.json", text)
    trace = load(tmp_path)
    assert rows(trace, Kind.STEP) == [("step", 0.0, 900.0, 0), ("step", 5.0, 905.0, 0)]
    first, second = trace.processes
    assert (first.host, second.host) == ("node0", "node1")
    assert (first.start_ns, second.start_ns, second.end_ns) == (0, 5000, 905_000)
    assert (first.pid, second.pid, second.index) == (1000, 2000, 1)
    assert (first.clock.error_ns, second.clock.error_ns) == (None, None)
    assert (first.local_rank, trace.run.duration_ns) == (None, 905_000)


def test_ranges_are_those_of_the_thread_that_steps_with_the_depth_at_which_they_lie(
    tmp_path: Path,
) -> None:
    trace = trace_of(
        tmp_path, STEP,
        annotation("train", 1000.0, 400.0),
        annotation("mine", 1000.0, 100.0),
        annotation("train/inner", 1100.0, 100.0),
        annotation("reward", 1400.0, 50.0),
        annotation("other", 1400.0, 500.0, tid=THREAD + 1),
    )  # fmt: skip
    assert rows(trace, Kind.SPAN) == [
        ("train", 0.0, 400.0, 1), ("mine", 0.0, 100.0, 2), ("train/inner", 100.0, 200.0, 2),
        ("reward", 400.0, 450.0, 1),
    ]  # fmt: skip
    assert trace.run.origin is not None
    assert trace.run.origin.phases == ("reward", "train")


def test_without_steps_the_busiest_thread_is_drawn(tmp_path: Path) -> None:
    trace = trace_of(
        tmp_path,
        annotation("train", 1000.0, 100.0), annotation("train", 1200.0, 100.0),
        annotation("reward", 1000.0, 150.0, tid=1),
    )  # fmt: skip
    assert [name for name, *_ in rows(trace, Kind.SPAN)] == ["train", "train"]


def linked(name: str, start_us: float, length_us: float, link: int) -> dict[str, Any]:
    return annotation(name, start_us, length_us, args={"External id": link})


def device_annotation(link: int, at_us: float) -> dict[str, Any]:
    return {**linked("x", at_us - 1.0, 1.0, link), "cat": "gpu_user_annotation"}


def measured(trace: Trace) -> dict[str, float]:
    """Of phases, what the device took, in microseconds."""
    spans = trace.spans
    chosen = np.flatnonzero(spans.kind == Kind.CUDA_SPAN).tolist()
    return {trace.names[spans.name[row]]: round(1000 * float(spans.value[row]), 3)
            for row in chosen}  # fmt: skip


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([linked("train", 1000.0, 10.0, 5), device_annotation(5, 1070.0)], {"train": 70.0}),
        # A range ends no earlier than on the CPU, and begins when the device is done before it.
        ([linked("train", 1000.0, 10.0, 5), device_annotation(5, 1004.0)], {"train": 10.0}),
        (
            [
                linked("logprob", 1000.0, 10.0, 4),
                device_annotation(4, 1050.0),
                linked("train", 1010.0, 10.0, 5),
                device_annotation(5, 1070.0),
            ],
            {"logprob": 50.0, "train": 20.0},
        ),
        (
            [
                linked("train", 1000.0, 100.0, 5),
                device_annotation(5, 1150.0),
                linked("train/inner", 1010.0, 10.0, 6),
                device_annotation(6, 1080.0),
            ],
            {"train": 150.0, "train/inner": 70.0},
        ),
        # Neither links to nothing, nor ranges of no phase, nor those without kernels are measured.
        ([linked("train", 1000.0, 10.0, 0), device_annotation(0, 1070.0)], {}),
        ([linked("mine", 1000.0, 10.0, 5), device_annotation(5, 1070.0)], {}),
        ([linked("train", 1000.0, 10.0, 5), device_annotation(6, 1070.0)], {}),
    ],
)
def test_the_device_took_from_its_last_work_to_the_end_of_what_was_launched(
    events: list[dict[str, Any]], expected: dict[str, float], tmp_path: Path
) -> None:
    trace = trace_of(tmp_path, STEP, *events)
    assert measured(trace) == expected
    depths = {name: depth for name, _, _, depth in rows(trace, Kind.SPAN)}
    assert all(depths[name] == depth for name, _, _, depth in rows(trace, Kind.CUDA_SPAN))


def nccl(start_us: float, length_us: float, **arguments: Any) -> dict[str, Any]:
    return kernel("ncclDevKernel_X", start_us, length_us, **arguments)


def test_collectives_have_their_stream_and_group(tmp_path: Path) -> None:
    trace = trace_of(
        tmp_path, STEP,
        nccl(1100.0, 5.0, **{"Process Group Name": "dp", "Seq": 4}),
        nccl(1200.0, 5.0),
        nccl(1300.0, 5.0, **{"Process Group Name": "dp", "Seq": 5}),
    )  # fmt: skip
    spans = trace.spans
    chosen = spans.kind == Kind.COLLECTIVE
    assert [trace.args[args]["group"] for args in spans.args[chosen]] == ["dp", "unknown", "dp"]
    assert spans.value[chosen].tolist() == [4, -1, 5]
    assert spans.thread[chosen].tolist() == [1007] * 3
    assert spans.thread[~chosen].tolist() == [0]
    assert len(trace.args) == 2


def test_a_devices_share_is_of_the_steps(tmp_path: Path) -> None:
    # Busy 300 and 200 us of 900, 100 of it both.
    trace = trace_of(tmp_path, STEP, kernel("gemm", 1100.0, 300.0), nccl(1300.0, 200.0))
    assert trace.run.notes[-1] == (
        "rank 0 GPU 0: busy 44% of the step time, in communication 22%, with no other kernel 11%."
    )
    util, talking = trace.series
    assert (util.name, talking.name, util.gpu) == ("gpu.util", "gpu.nccl", "rank 0 GPU 0")
    inside = (util.t_ns >= 100_000) & (util.t_ns < 499_999)
    assert (util.values[inside] > 99).all()
    assert (util.values[(util.t_ns < 100_000) | (util.t_ns >= 500_000)][:-1] < 1).all()
    assert talking.values[:-1][talking.t_ns[:-1] < 299_000].max() == 0
    assert len(util.values) == len(util.t_ns)


def test_without_steps_a_devices_share_is_of_its_own_time(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, kernel("gemm", 1000.0, 300.0), kernel("gemm", 1900.0, 100.0))
    assert any("busy 40% of the 0.001 s from its first kernel." in n for n in trace.run.notes)
    assert [series.name for series in trace.series] == ["gpu.util"]
    still = trace_of(tmp_path, annotation("ProfilerStep#3", 1000.0, 0.0), kernel("x", 1000.0, 10.0))
    assert any("from its first kernel" in note for note in still.run.notes)


def test_devices_are_told_as_far_as_the_file_describes_them(tmp_path: Path) -> None:
    head: dict[str, Any] = {"deviceProperties": [{"id": 1, "name": "H100", "totalGlobalMem": 5}]}
    trace = trace_of(
        tmp_path, STEP, kernel("x", 1100.0, 5.0), kernel("x", 1100.0, 5.0, device=1), **head
    )
    assert [(g.uuid, g.name, g.index, g.memory_total_bytes) for g in trace.gpus] == [
        ("rank 0 GPU 0", "GPU", 0, 0), ("rank 0 GPU 1", "H100", 1, 5),
    ]  # fmt: skip
    (process,) = trace.processes
    assert process.local_rank is None
    assert process.host == "unknown"
