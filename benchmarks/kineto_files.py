"""A trace as the PyTorch profiler writes it, of any size, written piece by piece."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

KERNELS_PER_STEP = 2_000
_HEAD = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "totalGlobalMem": 85_899_345_920}],
    "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},
    "baseTimeNanoseconds": 1_735_632_360_000_000_000,
}
_PROCESS = 4000
# Of each kernel: the operator, the call that launches it, the kernel, both ends of the arrow.
_EVENTS_PER_KERNEL = 5
_SPACING_US, _BUSY_US = 20.0, 14.0


def write_trace(path: Path, size_bytes: int) -> int:
    """Writes whole steps until the file has the size; the number of events."""
    events = step = 0
    with path.open("w", encoding="ascii") as file:
        file.write(json.dumps(_HEAD, indent=2)[:-2] + ',\n  "traceEvents": [')
        while file.tell() < size_bytes:
            written = _step(step)
            file.write("," * (step > 0) + ",".join(written))
            events += len(written)
            step += 1
        file.write('\n  ],\n  "traceName": "made.json"\n}\n')
    return events


def _step(number: int) -> list[str]:
    begin_us = 1000.0 + number * KERNELS_PER_STEP * _SPACING_US
    length_us = KERNELS_PER_STEP * _SPACING_US
    events = [_event("user_annotation", f"ProfilerStep#{number}", begin_us, length_us)]
    for index in range(KERNELS_PER_STEP):
        at, link = begin_us + index * _SPACING_US, number * KERNELS_PER_STEP + index + 1
        talks = index % 50 == 0
        name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL" if talks else "ampere_bf16_s16816gemm"
        launch = {"external id": link, "cbid": 211, "correlation": link}
        runs = {
            "external id": link, "queued": 0, "device": 0, "context": 1, "stream": 7,
            "correlation": link, "registers per thread": 128, "grid": [84, 1, 1],
            "block": [256, 1, 1], "est. achieved occupancy %": 31,
        }  # fmt: skip
        events += [
            _event("cpu_op", "aten::mm", at, 9.0, {"External id": link, "Ev Idx": link}),
            _event("cuda_runtime", "cudaLaunchKernel", at + 2, 5.0, launch),
            _event("kernel", name, at + 5, _BUSY_US, runs),
            _arrow("s", link, at + 2, _PROCESS, _PROCESS),
            _arrow("f", link, at + 5, 0, 7),
        ]
    assert len(events) == 1 + KERNELS_PER_STEP * _EVENTS_PER_KERNEL
    return events


def _event(
    category: str,
    name: str,
    start_us: float,
    length_us: float,
    args: Mapping[str, object] | None = None,
) -> str:
    process, thread = (0, 7) if category == "kernel" else (_PROCESS, _PROCESS)
    arguments_text = f',\n    "args": {json.dumps(args)}' if args else ""
    return (
        f'\n  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {process}, '
        f'"tid": {thread},\n    "ts": {start_us:.3f}, "dur": {length_us:.3f}{arguments_text}\n  }}'
    )


def _arrow(end: str, link: int, at_us: float, pid: int, tid: int) -> str:
    return (
        f'\n  {{\n    "ph": "{end}", "id": {link}, "pid": {pid}, "tid": {tid}, '
        f'"ts": {at_us:.3f},\n    "cat": "ac2g", "name": "ac2g", "bp": "e"\n  }}'
    )
