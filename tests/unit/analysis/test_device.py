"""Phases by the GPU's clock beside the host's, from the events of a stand-in with known times."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.document.judged import not_judged
from grpo_doctor.document.summary import phase_entries
from grpo_doctor.trace.merge import merge
from grpo_doctor.trace.model import Gpu, Kind, Trace
from tests.build import TraceBuilder
from tests.recording import PROBES, run_job

GPU = Gpu(uuid="GPU-0", name="stand-in", index=0, host="h", memory_total_bytes=1)
# Work is queued in no time; the GPU does it one piece after the other. Events are ready at once,
# with the time at which the GPU would have come to them.
TORCH = """
class cuda:
    busy_until_ms = 0.0
    class Event:
        def __init__(self, enable_timing): assert enable_timing
        def record(self): self.at = cuda.busy_until_ms
        def query(self): return True
        def elapsed_time(self, end): return end.at - self.at
    @staticmethod
    def is_initialized(): return True
    @staticmethod
    def is_current_stream_capturing(): return False
    @staticmethod
    def current_device(): return 0
    @staticmethod
    def queue(milliseconds): cuda.busy_until_ms += milliseconds
"""
JOB = """
from contextlib import nullcontext
from torch import cuda
from grpo_doctor_probes import capturemode, phase, step
import grpo_doctor_probes.cuda as ours
ours.capture_mode = nullcontext
for number in range(6):
    with step(number):
        with phase("logprob"):
            cuda.queue(300)
        with phase("rollout"):
            cuda.queue(1000)
            with phase("reward"):
                cuda.queue(50)
            with phase("rollout/generate"):
                cuda.queue(500)
        with phase("train"):
            pass
"""


def recorded(tmp_path: Path) -> Trace:
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "torch.py").write_text(TORCH)
    done = run_job(JOB, tmp_path / "run", env={"PYTHONPATH": f"{PROBES}{os.pathsep}{modules}"})
    assert (done.returncode, done.stderr) == (0, "")
    return replace(merge(tmp_path / "run"), gpus=(GPU,))


def test_what_was_queued_is_the_phases_that_queued_it(tmp_path: Path) -> None:
    analysis = analyse(recorded(tmp_path))
    assert analysis.device_seconds == pytest.approx(
        {"logprob": 0.3, "rollout": 1.5, "reward": 0.05, "train": 0.0}
    )
    entries = phase_entries(analysis)
    assert entries["logprob"].device_seconds == pytest.approx(0.3)
    assert entries["logprob"].seconds < 0.3  # by the host it is free
    assert not any(entry.host_time for entry in entries.values())
    assert not any("host time" in sentence for sentence in not_judged(analysis))


def test_on_gpus_without_events_phases_are_marked_as_host_time() -> None:
    build = TraceBuilder()
    build.gpu("GPU-0")
    for number in range(6):
        build.step(0, number, 10.0 * number, {"dataload": 1.0, "rollout": 4.0, "train": 5.0})
        build.row(
            Kind.CUDA_SPAN, 0, "train", 10.0 * number + 5, 10.0 * number + 10, depth=1, value=4e3
        )
    entries = phase_entries(analyse(build.build()))
    assert {name for name, entry in entries.items() if entry.host_time} == {"rollout"}
    assert entries["train"].device_seconds == pytest.approx(4.0)
    assert entries["rollout"].device_seconds is None
    (open_question,) = (s for s in not_judged(analyse(build.build())) if "host time" in s)
    assert open_question.startswith("What the GPUs took for rollout: host time")


def test_without_gpus_nothing_is_marked() -> None:
    build = TraceBuilder()
    for number in range(6):
        build.step(0, number, 10.0 * number, {"rollout": 4.0, "train": 5.0})
    analysis = analyse(build.build())
    assert not any(entry.host_time for entry in phase_entries(analysis).values())
