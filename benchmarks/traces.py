"""Large synthetic traces for the benchmarks: GRPO-like steps of 8 ranks, written as trace.json."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from grpo_doctor.trace.columns import Interned, join, spans_from
from grpo_doctor.trace.model import Exit, Kind, Loss, Metrics, Process, Run, Series, Spans, Trace
from grpo_doctor.trace.write import write_trace

RANKS = 8
STEP_NS = 10_000_000_000
# One step of one rank: phases with their shares, and how many sub-spans fill each.
LAYOUT = (("dataload", 0.05, 4), ("rollout", 0.5, 60), ("reward", 0.1, 20), ("train", 0.34, 34))
ROWS_PER_STEP = 1 + len(LAYOUT) + sum(count for _, _, count in LAYOUT)


def write_large_trace(path: Path, spans: int) -> int:
    """Writes a trace of about `spans` spans; returns how many it has."""
    trace = large_trace(spans)
    write_trace(trace, path)
    return len(trace.spans)


def large_trace(spans: int) -> Trace:
    """About `spans` spans: 8 ranks, steps of 10 s, sub-spans, one host series at 10 Hz."""
    steps = max(1, spans // (RANKS * ROWS_PER_STEP))
    names = Interned()
    step = _one_step(names)
    blocks = [_rank(step, rank, steps) for rank in range(RANKS)]
    end_ns = steps * STEP_NS
    samples = min(steps * 100, 36_000)
    t_ns = np.linspace(0, end_ns, samples).astype(np.int64)
    return Trace(
        source="benchmark",
        run=Run(
            id="benchmark",
            framework="bundled",
            world_size=RANKS,
            duration_ns=end_ns,
            exit=Exit("finished", 0),
        ),
        processes=tuple(
            Process(rank, 1000 * (rank + 1), 5000 + rank, "host", rank, start_ns=0, end_ns=end_ns)
            for rank in range(RANKS)
        ),
        gpus=(),
        names=names.names,
        args=(),
        spans=join(blocks),
        series=(Series("host.cpu", "%", "host", "host", t_ns, np.sin(t_ns / 1e10) * 40 + 50),),
        metrics=Metrics(np.arange(steps), {"reward": np.linspace(0, 1, steps)}),
        loss=Loss(),
    )


def _one_step(names: Interned) -> dict[str, Any]:
    rows: list[tuple[int, int, int, int, int]] = [(Kind.STEP, 0, names["step"], 0, STEP_NS)]
    now = 0
    for phase, share, count in LAYOUT:
        end = now + round(share * STEP_NS)
        rows.append((Kind.SPAN, 1, names[phase], now, end))
        edges = np.linspace(now, end, count + 1).astype(np.int64).tolist()
        part = names[f"{phase}/part"]
        rows += [(Kind.SPAN, 2, part, a, b) for a, b in pairwise(edges)]
        now = end
    kind, depth, name, start, end_ns = (np.array(column) for column in zip(*rows))
    return {"kind": kind, "depth": depth, "name": name, "start_ns": start, "end_ns": end_ns}


def _rank(step: dict[str, Any], rank: int, steps: int) -> Spans:
    count = len(step["kind"])
    offsets = np.repeat(np.arange(steps, dtype=np.int64) * STEP_NS, count)
    columns = {name: np.tile(values, steps) for name, values in step.items()}
    columns["start_ns"] = columns["start_ns"] + offsets
    columns["end_ns"] = columns["end_ns"] + offsets
    steps_of_rows = np.repeat(np.arange(steps), count)
    return spans_from(
        {
            **columns,
            "process": np.full(count * steps, rank),
            "thread": np.zeros(count * steps),
            "args": np.full(count * steps, -1),
            "value": np.where(columns["kind"] == Kind.STEP, steps_of_rows, 0),
            "open": np.zeros(count * steps),
        }
    )
