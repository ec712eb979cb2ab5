"""Each rank's seconds per phase, idle time and wait for others: by us, pandas, and HTA.

Called by `benchmarks.scale` with a peer and a trace.json; alone enough, so that another Python may
run it. Holistic Trace Analysis reads a folder of one Kineto trace per rank, so our spans become
kernels of one stream first (`--prepare`, not timed).
"""

# ruff: noqa: PLC0415 - each peer imports its own

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NEEDS = {"ours": "grpo_doctor", "pandas": "pandas", "hta": "hta"}


def ours(trace: Path) -> None:
    import numpy as np

    from grpo_doctor.analysis import analyse
    from grpo_doctor.phases import PHASES
    from grpo_doctor.trace.read import read_trace

    analysis = analyse(read_trace(trace))
    account = analysis.accounting
    for name, table in (("wait", account.wait), ("transfer", account.transfer)):
        print(name, table.mean(axis=0))
    print("idle", account.idle.mean(axis=0))
    print(*zip(PHASES, np.round(analysis.seconds.mean(axis=(0, 1)), 3)))


def plain_pandas(trace: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame(_events(trace))
    frame = frame[frame["ph"] == "X"]
    steps = frame[frame["cat"] == "grpo.step"]
    phases = frame[(frame["cat"] == "grpo.phase") & (frame["depth"] == 1)]
    calls = frame[frame["cat"] == "grpo.collective"].copy()
    calls["group"] = [args["group"] for args in calls["args"]]
    calls["last"] = calls.groupby(["group", "value"])["ts"].transform("max")
    calls["wait"] = (calls["last"] - calls["ts"]).clip(lower=0)
    calls["transfer"] = calls["ts"] + calls["dur"] - calls["last"]
    by_phase = phases.pivot_table("dur", "pid", "name", "sum")
    step_us = steps.groupby("pid")["dur"].sum()
    table = by_phase.assign(
        idle=step_us - by_phase.sum(axis=1),
        wait=calls.groupby("pid")["wait"].sum(),
        transfer=calls.groupby("pid")["transfer"].sum(),
    )
    print(table.mean() / 1e6 / steps["value"].nunique())


def hta(trace: Path) -> None:
    from hta.trace_analysis import TraceAnalysis

    files = sorted(_kineto(trace).iterdir(), key=lambda f: int(f.name[5:].split(".")[0]))
    by_rank = {rank: str(file) for rank, file in enumerate(files)}
    analyzer = TraceAnalysis(by_rank, str(_kineto(trace)))
    print(analyzer.get_temporal_breakdown(visualize=False).head())


def convert(trace: Path) -> None:
    """Writes a Kineto trace per rank."""
    _kineto(trace).mkdir()
    ranks: dict[int, list[dict[str, Any]]] = {}
    for event in _events(trace):
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
        with gzip.open(_kineto(trace) / f"rank_{rank}.json.gz", "wt", compresslevel=1) as out:
            json.dump({**head, "traceEvents": [step, *kernels]}, out)


def _events(trace: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(trace.read_text("utf-8"))["traceEvents"]
    return events


def _kineto(trace: Path) -> Path:
    return trace.parent / "kineto"


PEERS: dict[str, Callable[[Path], None]] = {"ours": ours, "pandas": plain_pandas, "hta": hta}


if __name__ == "__main__":
    peer, path = sys.argv[1], Path(sys.argv[-1])
    if "--prepare" not in sys.argv:
        PEERS[peer](path)
    elif find_spec(NEEDS[peer]) is None:
        sys.exit(f"{peer} is not installed")
    elif peer == "hta":
        convert(path)
