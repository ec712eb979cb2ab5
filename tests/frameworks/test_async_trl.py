"""TRL's AsyncGRPOTrainer with a stand-in of vLLM's server, parts of it slow by a known time.

A real trainer and rollout loop on the CPU; what stands in is the server, NCCL's sender and the
attention kernel. The first case is part of `make test-heavy`, the others of `make frameworks`. They
need aiohttp, requests and jmespath beside TRL: in the environment of the tests (vLLM's CPU build
brings them, as in CI), or `env-trl-async` of those that `make frameworks` builds.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest

from grpo_doctor.analysis import Analysis, analyse
from grpo_doctor.findings.rule import Answer, Finding
from grpo_doctor.findings.rules import gd027_starved_trainer
from grpo_doctor.findings.view import RunView
from grpo_doctor.trace.intervals import Intervals, Times, intersect, union
from grpo_doctor.trace.model import Kind, Trace
from grpo_doctor.trace.read import load
from tests.frameworks.environments import python_of
from tests.frameworks.inputs import write_model
from tests.frameworks.recorded_jobs import ENVIRONMENTS, phase_seconds, recording
from tests.integration.test_run import wait_for
from tests.ports import free_port

CODE = Path(__file__).parent / "user_code"
STEPS = 6

pytest.importorskip("trl", reason="TRL needs Python 3.11")
pytestmark = [pytest.mark.heavy, pytest.mark.slow]


@dataclass(frozen=True)
class Case:
    """`engine_s` and `seconds` are what completions, and calls of the job's parts, take.

    Attributes:
        slow: the part that is slower than the rest.
        span: what its seconds are recorded as.
        advice: how the advice begins.
    """

    slow: str
    span: str
    advice: str
    engine_s: float
    seconds: Mapping[str, float]
    ranks: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)


CASES = {
    "reward": Case(
        "reward", "reward/length_reward", "make the reward (most of it length_reward) faster",
        0.2, {"reward": 1.5},
    ),
    "tool": Case(
        "tool", "rollout/tools/look_up", "make the tools (most of it look_up) faster",
        0.1, {"tool": 2.0},
    ),
    "coroutine tool on two ranks": Case(
        "tool", "rollout/tools/look_up", "make the tools (most of it look_up) faster",
        0.1, {"tool": 2.0}, 2, {"ASYNC_TOOL": "1"},
    ),
    "engine": Case("engine", "rollout/generate", "move GPUs from training to", 2.0, {}),
    "training": Case(
        "train", "train", "move GPUs from the rollout engine to", 0.1, {"train": 2.0}
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Training:
    folder: Path

    @cached_property
    def trace(self) -> Trace:
        return load(f"{self.folder}.run")

    @cached_property
    def analysis(self) -> Analysis:
        return analyse(self.trace)

    @cached_property
    def steps(self) -> Intervals:
        """From the first step to the last: how a run begins and ends is not compared."""
        spans = self.trace.spans
        of = spans.kind == Kind.STEP
        return union(spans.start_ns[of].min(keepdims=True), spans.end_ns[of].max(keepdims=True))

    def truth_s(self, part: str) -> float:
        """How long any call of it was going on, by its own stopwatch."""
        times = np.loadtxt(self.folder / f"{part}.txt", dtype=np.int64, ndmin=2)
        return self._covered_s(*(times - self.trace.run.started_unix_ns).T)

    def recorded_s(self, name: str) -> float:
        """How long any span of that name was open."""
        spans = self.trace.spans
        of = (spans.kind == Kind.SPAN) & (spans.name == self.trace.names.index(name))
        return self._covered_s(spans.start_ns[of], spans.end_ns[of])

    def _covered_s(self, start_ns: Times, end_ns: Times) -> float:
        return intersect(union(start_ns, end_ns), self.steps).total_ns / 1e9

    @property
    def logged_wait_s(self) -> float:
        """How long the trainer itself says that it waited for samples."""
        rows = map(json.loads, (self.folder / "log.jsonl").read_text().splitlines())
        return float(sum(row.get("perf/rollout_wait_s", 0.0) for row in rows))

    def judged(self) -> Answer:
        return gd027_starved_trainer.check(RunView.of(self.trace))


def python() -> Path:
    if all(map(importlib.util.find_spec, ("aiohttp", "requests", "jmespath"))):
        return Path(sys.executable)
    beside = python_of(ENVIRONMENTS / "env-trl-async")
    if not beside.exists():
        pytest.skip("no aiohttp beside TRL: `make frameworks` or `make test-vllm` installs it")
    return beside


@contextmanager
def server(model: Path, folder: Path, seconds: float) -> Iterator[str]:
    words = [sys.executable, CODE / "vllm_server.py", model / "tokenizer.json", folder]
    with subprocess.Popen([*map(str, words), str(seconds)]) as process:
        try:
            wait_for((folder / "port").exists)
            yield f"http://127.0.0.1:{(folder / 'port').read_text()}"
        finally:
            process.terminate()


def run(case: Case, folder: Path) -> Training:
    interpreter = python()
    folder.mkdir()
    model = write_model(folder / "model")
    options = {
        "max_steps": STEPS, "max_completion_length": 128, "max_staleness": 16,
        "max_inflight_tasks": 4, "queue_maxsize": 8 * case.ranks,
    }  # fmt: skip
    variables = {
        **os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **case.environment,
        "PYTHONPATH": str(CODE / "vllm_stand_in"), "TRL_OPTIONS": json.dumps(options),
    }  # fmt: skip
    with server(model, folder, case.engine_s) as url:
        torchrun = (
            str(interpreter), "-m", "torch.distributed.run", f"--nproc_per_node={case.ranks}",
            f"--master_port={free_port()}", str(CODE / "trl_async.py"), str(model), str(folder),
            url, json.dumps(dict(case.seconds)),
        )  # fmt: skip
        done = subprocess.run(
            [*recording(Path(f"{folder}.run")), *torchrun],
            env=variables, capture_output=True, text=True, timeout=500, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return Training(folder)


def check_side(name: str, tmp_path: Path) -> None:
    """The slow part is told, on its side, as long as it was."""
    case = CASES[name]
    training = run(case, tmp_path / case.slow)
    seconds = phase_seconds(training.analysis)
    assert len(training.analysis.steps.numbers) == STEPS
    assert seconds["dataload"] == 0
    assert training.analysis.share("unattributed") < 0.05
    assert training.trace.run.framework == "trl"
    answer = training.judged()
    assert isinstance(answer, Finding), answer
    assert answer.fixes[0].spelling.startswith(case.advice)
    # The sleep is beside what training itself takes.
    own = ("train/loss", "train/backward") if case.slow == "train" else ()
    recorded_s = training.recorded_s(case.span) - sum(map(training.recorded_s, own))
    assert recorded_s == pytest.approx(training.truth_s(case.slow), rel=0.05)
    if case.slow == "train":
        assert "training is the slower side" in answer.cause
    else:
        assert answer.cost > 0.3
        # Batches are packed and sent to the other ranks within it: 0.1 s a step on a busy machine.
        assert seconds["rollout"] > 0.95 * training.logged_wait_s


def test_a_slow_reward_is_found_on_the_side_of_the_rollout(tmp_path: Path) -> None:
    check_side("reward", tmp_path)


@pytest.mark.skipif(not ENVIRONMENTS.exists(), reason="`make frameworks` runs it")
@pytest.mark.parametrize("name", sorted({*CASES} - {"reward"}))
def test_another_slow_part_is_found_on_its_side(name: str, tmp_path: Path) -> None:
    check_side(name, tmp_path)


@pytest.mark.skipif(not ENVIRONMENTS.exists(), reason="`make frameworks` runs it")
def test_of_two_sides_alike_neither_is_starved(tmp_path: Path) -> None:
    training = run(Case("", "", "", 1.5, {"train": 1.5}), tmp_path / "healthy")
    answer = training.judged()
    assert not isinstance(answer, Finding) or answer.cost < 0.3
    assert training.analysis.share("unattributed") < 0.05
