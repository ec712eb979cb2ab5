"""Each rank's compute, communication and idle time by Holistic Trace Analysis: a peer of ours.

It reads one Kineto trace per rank, so our spans become kernels of one stream first (not timed).
Called by `benchmarks.scale` with a trace.json; alone enough, so that another Python may run it.
"""

from __future__ import annotations

import gzip
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def folder_of(path: str) -> Path:
    return Path(path).parent / "kineto"


def convert(path: str) -> None:
    folder = folder_of(path)
    folder.mkdir()
    ranks: dict[int, list[dict[str, Any]]] = {}
    with open(path, encoding="utf-8") as file:  # noqa: PTH123
        events = json.load(file)["traceEvents"]
    for event in events:
        # Spans with spans in them would count twice: HTA knows no nesting on a stream.
        leaf = event.get("depth") == 2 or event.get("name") in ("dataload", "logprob", "optimizer")
        if event.get("ph") != "X" or not leaf:
            continue
        call = event["cat"] == "grpo.collective"
        mine = ranks.setdefault(event["pid"] // 1000 - 1, [])
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL" if call else event["name"]
        args = {"stream": 7, "correlation": len(mine) + 1, "device": 0}
        times = {"ts": event["ts"], "dur": event["dur"], "pid": 0, "tid": 7}
        mine.append({"ph": "X", "cat": "kernel", "name": name, **times, "args": args})
    for rank, kernels in ranks.items():
        step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1}
        step.update(
            ts=kernels[0]["ts"], dur=kernels[-1]["ts"] + kernels[-1]["dur"] - kernels[0]["ts"]
        )
        head = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": len(ranks)}}
        with gzip.open(folder / f"rank_{rank}.json.gz", "wt", compresslevel=1) as out:
            json.dump({**head, "traceEvents": [step, *kernels]}, out)


def main(path: str) -> None:
    from hta.trace_analysis import TraceAnalysis  # noqa: PLC0415 - as above

    files = sorted(folder_of(path).iterdir(), key=lambda f: int(f.name[5:].split(".")[0]))
    analyzer = TraceAnalysis(
        {rank: str(file) for rank, file in enumerate(files)}, str(files[0].parent)
    )
    print(analyzer.get_temporal_breakdown(visualize=False).head())


if __name__ == "__main__":
    if sys.argv[1] == "--installed":
        sys.exit(find_spec("hta") is None)
    elif sys.argv[1] == "--convert":
        convert(sys.argv[2])
    else:
        main(sys.argv[1])
