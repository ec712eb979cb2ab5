"""Run directories read while ranks write into them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from grpo_doctor.trace.model import Kind
from grpo_doctor.trace.read import load
from grpo_doctor.trace.write import write_trace
from tests.recording import PATIENCE_S, start_job

WRITER = """
import sys, threading
from grpo_doctor_probes import counter, metrics, phase, step

stop = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
number = 0
while not stop.is_set():
    with step(number):
        with phase("rollout"):
            with phase(f"rollout/kind{number % 300}"):
                counter("tokens", number)
    if number % 100 == 0:
        metrics(number, {"loss": 1.0 / (number + 1)})
    if number == 2000:
        print("writing", flush=True)
    number += 1
print(number)
"""


@pytest.mark.parametrize("max_mb", ["256", "1"])
def test_reading_again_and_again_while_it_is_written(tmp_path: Path, max_mb: str) -> None:
    job = start_job(WRITER, tmp_path, env={"GRPO_DOCTOR_MAX_MB": max_mb})
    try:
        assert job.stdout is not None
        assert job.stdout.readline() == "writing\n"
        last = 0
        for _ in range(15):
            trace = load(tmp_path)
            assert not [n for n in trace.loss.notes if "damaged" in n or "errors" in n]
            assert [p.state for p in trace.processes] == ["open"]
            steps = trace.spans.value[trace.spans.kind == Kind.STEP]
            assert steps.max() >= last
            last = int(steps.max())
            assert "(unnamed)" not in {trace.names[n] for n in np.unique(trace.spans.name)}
            assert np.all(trace.spans.end_ns >= trace.spans.start_ns)
        out, err = job.communicate("stop\n", timeout=PATIENCE_S)
    finally:
        job.kill()
        job.wait()
    assert (job.returncode, err) == (0, "")
    trace = load(tmp_path)
    assert trace.loss.notes == ()
    steps = trace.spans.value[trace.spans.kind == Kind.STEP]
    assert steps.max() == int(out) - 1
    event_count = sum(trace.spans.kind == Kind.SPAN) + len(steps) + len(trace.series[0].values)
    assert event_count + trace.loss.dropped_events == 4 * int(out)
    write_trace(trace, tmp_path / "trace.json")
    assert len(load(tmp_path / "trace.json").spans) == len(trace.spans)
