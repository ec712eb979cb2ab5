"""Files as Kineto writes them, made in code."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BASE_NS = 1_735_632_360_000_000_000
CPU, THREAD, STREAM = 4000, 4000, 7
Event = Mapping[str, Any]


def complete(
    category: str, name: str, start_us: float, length_us: float, **more: Any
) -> dict[str, Any]:
    process = {"pid": CPU, "tid": THREAD}
    times = {"ts": start_us, "dur": length_us}
    return {"ph": "X", "cat": category, "name": name, **process, **times, **more}


def annotation(name: str, start_us: float, length_us: float, **more: Any) -> dict[str, Any]:
    return complete("user_annotation", name, start_us, length_us, **more)


def kernel(
    name: str, start_us: float, length_us: float, device: int = 0, **arguments: Any
) -> dict[str, Any]:
    more = {"pid": device, "tid": STREAM, "args": {"device": device, **arguments}}
    return complete("kernel", name, start_us, length_us, **more)


def rank_events(steps: int = 4, device: int = 0, step_us: float = 1000.0) -> list[dict[str, Any]]:
    """Steps of 1 ms: a quarter data, half train, and on the device 400 us of computation and 200 us
    of communication, half of it beside that."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": CPU, "tid": 0, "ts": 0, "args": {"name": "x"}}
    ]
    for number in range(steps):
        at = 5000.5 + number * step_us
        events += [
            annotation(f"ProfilerStep#{number + 10}", at, step_us),
            annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, 250),
            annotation("DistributedDataParallel.forward", at + 250, 500),
            annotation("nccl:all_reduce", at + 300, 10),
            annotation("## backward ##", at + 250, 500, tid=THREAD + 1),
            complete("cpu_op", "aten::mm", at + 260, 20),
            kernel("ampere_sgemm", at + 300, 400, device),
            kernel(
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", at + 600, 200, device,
                **{"Collective name": "allreduce", "Seq": number, "Process Group Name": "0"},
            ),
            {"ph": "s", "id": number, "pid": CPU, "tid": THREAD, "ts": at, "cat": "ac2g"},
        ]  # fmt: skip
    return events


def text_of(
    events: Sequence[Event], rank: int | None = 0, world_size: int = 1, indent: int | None = 2
) -> str:
    """The file's text: with indentation as Kineto writes it, without as others do."""
    info: dict[str, Any] = {"backend": "nccl", "world_size": world_size}
    if rank is not None:
        info["rank"] = rank
    head = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "totalGlobalMem": 85_899_345_920}],
        "distributedInfo": info,
        "baseTimeNanoseconds": BASE_NS,
        "traceEvents": list(events),
        "traceName": "x.json",
    }
    return json.dumps(head, indent=indent).replace("\n    {", "\n  {").replace("\n    }", "\n  }")


def write(path: Path, text: str) -> Path:
    content = text.encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path
