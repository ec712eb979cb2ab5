"""Phases by the GPU's clock beside the host's, from the events of a stand-in with known times."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.analysis.rows import CODES
from grpo_doctor.document.summary import not_judged, phase_entries
from grpo_doctor.findings.rule import Finding, NotApplicable, Passed
from grpo_doctor.findings.rules import gd042_avoidable_logprobs as gd042
from grpo_doctor.findings.view import RunView
from grpo_doctor.trace.merge import merge
from grpo_doctor.trace.model import Gpu, Kind, Trace
from tests.build import TraceBuilder
from tests.recording import PROBES, run_job

GPU = Gpu(uuid="GPU-0", name="stand-in", index=0, host="h", memory_total_bytes=1)
# Host and GPU have one clock of the test's own. Work is queued in no time; the GPU does one piece
# after the other. Events can be read at once, with the time at which the GPU will come to them.
TORCH = """
import time

class cuda:
    now_ns = busy_until_ns = time.monotonic_ns() + 10**9  # after the recording's begin
    class Event:
        def __init__(self, enable_timing): assert enable_timing
        def record(self): self.at_ns = max(cuda.now_ns, cuda.busy_until_ns)
        def query(self): return True
        def elapsed_time(self, end): return (end.at_ns - self.at_ns) / 1e6
    @staticmethod
    def is_initialized(): return True
    @staticmethod
    def is_current_stream_capturing(): return False
    @staticmethod
    def current_device(): return 0
    @staticmethod
    def queue(milliseconds):
        cuda.busy_until_ns = max(cuda.now_ns, cuda.busy_until_ns) + 1_000_000 * milliseconds
    @staticmethod
    def host(milliseconds): cuda.now_ns += 1_000_000 * milliseconds
    @staticmethod
    def synchronize(): cuda.now_ns = max(cuda.now_ns, cuda.busy_until_ns)
    @staticmethod
    def read():
        cuda.now_ns += 1000
        return cuda.now_ns
"""
PREPARED = """
from contextlib import nullcontext
from torch import cuda
from grpo_doctor_probes import phase, step
from grpo_doctor_probes.record import spans
import grpo_doctor_probes.record.cuda as ours
ours.capture_mode = nullcontext
spans.monotonic_ns = cuda.read
"""
NESTED = """
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
            cuda.host(1)
"""
# A step of 2 s, and the next one begins with what is left of its optimizer on the GPU.
TRAINING = """
for number in range(8):
    with step(number):
        with phase("dataload"):
            cuda.host(200)
        with phase("rollout"):
            cuda.queue(1000)
            cuda.synchronize()
        with phase("logprob"):
            with phase("logprob/reference"):
                cuda.queue(REFERENCE)
        with phase("train"):
            cuda.host(20)
            cuda.queue(400)
        with phase("reward"):
            cuda.synchronize()
            cuda.host(50)
        with phase("optimizer"):
            cuda.queue(100)
        cuda.host(50)
"""
# By the GPU's clock; the loader works beside 50 ms of the optimizer's 100, the host then waits.
TOOK_S = {
    "dataload": 0.15, "rollout": 1.0, "logprob": 0.3, "train": 0.4, "reward": 0.05,
    "optimizer": 0.1,
}  # fmt: skip


def recorded(tmp_path: Path, job: str, **numbers: int) -> Trace:
    modules = tmp_path / "modules"
    modules.mkdir(parents=True)
    (modules / "torch.py").write_text(TORCH)
    for name, number in numbers.items():
        job = job.replace(name, str(number))
    done = run_job(
        PREPARED + job, tmp_path / "run", env={"PYTHONPATH": f"{PROBES}{os.pathsep}{modules}"}
    )
    assert (done.returncode, done.stderr) == (0, "")
    return replace(merge(tmp_path / "run"), gpus=(GPU,))


def without_events(trace: Trace) -> Trace:
    return replace(trace, spans=trace.spans.select(trace.spans.kind != Kind.CUDA_SPAN))


def with_tiny_beta(trace: Trace) -> Trace:
    """The same run, whose reference hardly counts."""
    return replace(trace, run=replace(trace.run, knobs={"train.beta": 0.0001}))


def test_what_was_queued_is_the_phases_that_queued_it(tmp_path: Path) -> None:
    analysis = analyse(recorded(tmp_path, NESTED))
    assert analysis.device_seconds == pytest.approx(
        {"logprob": 0.3, "rollout": 1.5, "reward": 0.05, "train": 0.0}
    )


def test_a_table_has_what_the_gpu_took_and_adds_up_to_the_step(tmp_path: Path) -> None:
    analysis = analyse(recorded(tmp_path, TRAINING, REFERENCE=300))
    entries = phase_entries(analysis)
    for phase, took_s in TOOK_S.items():
        # The first step has nothing left over from one before.
        assert analysis.seconds[1:, 0, CODES[phase]] == pytest.approx(took_s, abs=1e-3), phase
        assert entries[phase].seconds == pytest.approx(took_s, abs=0.01)
    assert analysis.step_s == pytest.approx(2.0, abs=1e-3)
    assert np.nansum(analysis.seconds, axis=2) == pytest.approx(analysis.steps.seconds)
    assert not any(entry.host_time for entry in entries.values())
    assert not any("host time" in sentence for sentence in not_judged(analysis))


def test_by_the_host_alone_the_next_phase_that_needs_a_result_pays(tmp_path: Path) -> None:
    entries = phase_entries(analyse(without_events(recorded(tmp_path, TRAINING, REFERENCE=300))))
    assert entries["logprob"].seconds < 1e-3
    assert entries["reward"].seconds == pytest.approx(0.73, abs=1e-3)


def test_rules_and_predictions_are_about_what_the_gpu_took(tmp_path: Path) -> None:
    trace = with_tiny_beta(recorded(tmp_path / "with", TRAINING, REFERENCE=300))
    assert isinstance(gd042.check(RunView.of(without_events(trace))), NotApplicable | Passed)
    view = RunView.of(trace)
    finding = gd042.check(view)
    assert isinstance(finding, Finding)
    assert finding.cost == pytest.approx(0.3 / 2.0, abs=1e-3)
    step_s = analyse(recorded(tmp_path / "without", TRAINING, REFERENCE=0)).step_s
    assert step_s is not None
    predicted = view.predicted(finding.fixes[0]).predicted
    assert predicted is not None
    # 20 ms that the host took beside the pass are seen without it, which no replay knows.
    truth = 100 * (step_s / 2.0 - 1)
    assert predicted.mid == pytest.approx(truth, abs=1.1)
    assert predicted.low <= truth <= predicted.high


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
    assert open_question.startswith("GPU time of rollout: not measured")


def test_without_gpus_nothing_is_marked() -> None:
    build = TraceBuilder()
    for number in range(6):
        build.step(0, number, 10.0 * number, {"rollout": 4.0, "train": 5.0})
    analysis = analyse(build.build())
    assert not any(entry.host_time for entry in phase_entries(analysis).values())
