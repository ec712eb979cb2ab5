"""Files of every format version ever released stay readable.

A file in `tests/golden` is never changed: a new format version adds one beside it.
"""

from __future__ import annotations

import math
from pathlib import Path

from grpo_doctor.trace.model import FORMAT, Kind
from grpo_doctor.trace.read import read_trace

GOLDEN = Path(__file__).parents[2] / "golden"


def test_there_is_a_file_for_each_version() -> None:
    versions = sorted(p.name for p in GOLDEN.glob("trace_v*.json"))
    assert versions == [f"trace_v{n}.json" for n in range(1, FORMAT + 1)]


def test_version_1() -> None:
    trace = read_trace(GOLDEN / "trace_v1.json")
    assert (trace.run.id, trace.run.framework, trace.run.world_size) == ("built", "bundled", 2)
    assert trace.run.knobs == {"offload.optimizer": True, "temperature": 0.9}
    assert trace.run.config["path"] == "höst · 模型"
    assert (trace.run.exit.state, trace.run.exit.code) == ("finished", 0)
    assert [p.rank for p in trace.processes] == [0, 1]
    assert [p.state for p in trace.processes] == ["finished", "open"]
    assert [g.uuid for g in trace.gpus] == ["GPU-1"]
    assert trace.metrics.steps.tolist() == [0, 1]
    assert trace.metrics.values["loss"].tolist() == [0.5, math.inf]
    assert trace.loss.dropped_events == 3
    assert trace.loss.missing_ranks == (5,)
    assert trace.loss.truncated
    assert [s.name for s in trace.series] == ["gpu.power", "host.cpu", "tokens"]
    assert trace.series[0].t_ns.tolist() == [0, 10**9, 2_500_000_000]
    assert math.isnan(trace.series[0].values[1])
    assert trace.series[2].rank == 1


def test_the_spans_of_version_1() -> None:
    trace = read_trace(GOLDEN / "trace_v1.json")
    spans = trace.spans
    counts = {kind: int((spans.kind == kind).sum()) for kind in Kind}
    assert counts == {
        Kind.SPAN: 15, Kind.STEP: 6, Kind.INSTANT: 2, Kind.COLLECTIVE: 6, Kind.COLLECTIVE_WAIT: 2,
        Kind.CUDA_SPAN: 2,
    }  # fmt: skip
    steps = spans.select((spans.kind == Kind.STEP) & (spans.process == 1))
    assert steps.value.tolist() == [0, 1, 2]
    assert steps.start_ns.tolist() == [0, 10**9, 2 * 10**9]
    assert (steps.end_ns - steps.start_ns).tolist() == [10**9] * 3
    opened = spans.select(spans.open)
    assert [trace.names[n] for n in opened.name] == ["rollout"]
    (reward,) = spans.select((spans.thread == 4) & (spans.process == 0)).args
    assert trace.args[reward] == {"name": "accuracy"}
