"""GPU times on a real device: right, and never waited for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recording import read_rows, run_job, spans_file

pytestmark = pytest.mark.gpu

JOB = """
import time
import torch
from grpo_doctor_probes import phase, step
from grpo_doctor_probes.record import recorder

torch.cuda.init()
cycles = 200_000_000  # some 100 ms on today's devices
torch.cuda._sleep(1000)
torch.cuda.synchronize()
for number in range(5):
    with step(number):
        with phase("train"):
            begun = time.perf_counter()
            torch.cuda._sleep(cycles)
        queued_ms = (time.perf_counter() - begun) * 1e3
        with phase("reward"):
            pass
    assert queued_ms < 20, "the span's end waited for the GPU"
    measured = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    measured[0].record()
    torch.cuda._sleep(cycles)
    measured[1].record()
    torch.cuda.synchronize()
    expected_ms = measured[0].elapsed_time(measured[1])
graph = torch.cuda.CUDAGraph()
value = torch.ones(8, device="cuda")
with step(5):
    with phase("rollout"):
        with torch.cuda.graph(graph):
            with phase("rollout/generate"):
                value += 1
    graph.replay()
torch.cuda.synchronize()
with step(6):
    pass
print(expected_ms)
"""


@pytest.fixture(scope="module", autouse=True)
def device() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")


def test_gpu_times_are_those_of_the_device(tmp_path: Path) -> None:
    done = run_job(JOB, tmp_path)
    assert done.returncode == 0, done.stderr
    expected_ms = float(done.stdout)
    rows = read_rows(spans_file(tmp_path))
    trains = [r for r in rows if r.kind == "cuda" and r.name == "train"]
    assert len(trains) == 5
    for row in trains[1:]:
        assert row.value == pytest.approx(expected_ms, rel=0.2)
        assert (row.end_ns - row.start_ns) / 1e6 < expected_ms / 2, "the host only queued it"
    rewards = [r for r in rows if r.kind == "cuda" and r.name == "reward"]
    assert all(r.value < expected_ms / 2 for r in rewards)
    assert {r.name for r in rows if r.kind == "span"} >= {"rollout", "rollout/generate"}
