"""`run --torch-profile`: the chosen step in PyTorch's own trace, with our phases, on one clock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from grpo_doctor.importers.load import load
from grpo_doctor.trace.model import Kind, Trace
from tests.integration.test_run import PATIENCE_S, run_command

pytest.importorskip("torch", reason="needs torch, any build")
pytestmark = [pytest.mark.slow, pytest.mark.heavy]

JOB = """
import time
import torch
from grpo_doctor_probes import phase, step
for number in range(1, 5):
    with step(number):
        print("step", number, time.time_ns(), flush=True)
        with phase("rollout"), phase("rollout/generate"):
            torch.ones(8, 8) @ torch.ones(8, 8)
        with phase("train"):
            torch.ones(8, 8).sum()
        print("step", number, time.time_ns(), flush=True)
"""
_CLOCKS_NS = 100_000_000  # between the wall clock and the profiler's


def step_times(trace: Trace) -> dict[int, tuple[int, int]]:
    spans = trace.spans
    rows = spans.select(spans.kind == Kind.STEP)
    times = zip(rows.start_ns.tolist(), rows.end_ns.tolist())
    return dict(zip(map(int, rows.value), times))


def test_the_chosen_steps_are_in_pytorchs_trace_with_our_phases(tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = run_command(
        "-o", str(run), "--torch-profile", "2:2", "--no-report", job=[sys.executable, "-c", JOB]
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (run / "profiles").iterdir()] == ["rank-00000.pt.trace.json"]
    ours, profile = load(run / "trace.json"), load(run / "profiles")
    assert f"grpo-doctor report {run}/profiles" in ours.run.notes[-1]
    assert sorted(step_times(ours)) == [1, 2, 3, 4]
    assert sorted(step_times(profile)) == [2, 3]
    assert {"rollout", "rollout/generate", "train"} <= set(profile.names)
    assert not ours.loss.any
    moments = [tuple(map(int, line.split()[1:])) for line in done.stdout.splitlines()]
    for number, (begun_ns, ended_ns) in step_times(profile).items():
        first, last = (moment for step, moment in moments if step == number)
        zero_ns = profile.run.started_unix_ns
        assert zero_ns + begun_ns <= first + _CLOCKS_NS
        assert zero_ns + ended_ns >= last - _CLOCKS_NS
