"""verl's trainers beside which a rollout of its own runs: real classes and loops, no workers.

They need the environment of `make frameworks`, and are skipped without it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.analysis.per_step import named_seconds
from grpo_doctor.trace.read import load
from tests.frameworks.environments import python_of
from tests.frameworks.recorded_jobs import ENVIRONMENTS, recording, stopwatch

PYTHON = python_of(ENVIRONMENTS / "env-verl")
JOB = Path(__file__).parent / "user_code" / "verl_async.py"
STEPS = {"separate_async": 4, "one_step_off": 4, "fully_async": 5}  # the last waits in vain

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="no environment with verl"),
]


@pytest.mark.parametrize("trainer", STEPS)
def test_the_wait_for_samples_is_a_wait(trainer: str, tmp_path: Path) -> None:
    folder, run = tmp_path / "job", tmp_path / "run"
    folder.mkdir()
    done = subprocess.run(
        [*recording(run, "--no-report"), str(PYTHON), str(JOB), trainer, str(folder)],
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    trace = load(run)
    assert [process.role for process in trace.processes] == ["driver"]
    analysis = analyse(trace)
    assert len(analysis.steps.numbers) == STEPS[trainer]
    waited_s = named_seconds(analysis, "rollout/wait")[:, 0].sum()
    assert waited_s == pytest.approx(stopwatch(folder)["wait"], rel=0.05)
