"""TRL's own GRPO jobs under `grpo-doctor run`: phases against the job's own stopwatch.

The newest TRL is in the environment of the tests; older ones have environments of their own in
FRAMEWORK_ENVIRONMENTS (`make frameworks-all`), and are skipped without them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.analysis.per_step import named_seconds, unattributed_span_seconds
from grpo_doctor.phases import PHASES
from grpo_doctor.trace.read import load
from tests.frameworks.environments import python_of
from tests.frameworks.inputs import write_model
from tests.frameworks.recorded_jobs import ENVIRONMENTS, phase_seconds, recording, stopwatch
from tests.ports import free_port

JOB = Path(__file__).parent / "user_code" / "trl_stopwatch.py"
NEWEST = "newest"
VERSIONS = {NEWEST: "", "0.22.2": "env-trl-0.22", "0.18.2": "env-trl-0.18"}
SECONDS = {"reward": 0.3, "dataload": 0.1, "callback": 0.2}
STEPS = 6

pytest.importorskip("trl", reason="TRL needs Python 3.11")
pytestmark = [pytest.mark.heavy, pytest.mark.slow]


@dataclass(frozen=True)
class Done:
    version: str
    code: int
    folder: Path
    stdout: str
    stderr: str

    @property
    def losses(self) -> list[dict[str, Any]]:
        return [
            json.loads(line) for line in (self.folder / "losses.jsonl").read_text().splitlines()
        ]

    @property
    def stopwatch(self) -> dict[str, float]:
        return stopwatch(self.folder)


def python_of_version(version: str) -> Path:
    if version == NEWEST:
        return Path(sys.executable)
    python = python_of(ENVIRONMENTS / VERSIONS[version])
    if not python.exists():
        pytest.skip(f"no environment with TRL {version} in {ENVIRONMENTS}")
    return python


def job(folder: Path, *prefix: str, version: str = NEWEST, fail_at: int = 0) -> Done:
    python = python_of_version(version)
    folder.mkdir()
    model = write_model(folder / "model")
    torchrun = (
        str(python), "-m", "torch.distributed.run", "--nproc_per_node=2",
        f"--master_port={free_port()}", str(JOB), str(model), str(folder), json.dumps(SECONDS),
    )  # fmt: skip
    done = subprocess.run(
        [*prefix, *torchrun],
        env=_environment(fail_at), capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    return Done(version, done.returncode, folder, done.stdout, done.stderr)


def _environment(fail_at: int) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "FAIL_AT": str(fail_at)}


def recorded(folder: Path, *flags: str, **options: Any) -> Done:
    return job(folder, *recording(Path(f"{folder}.run"), *flags), **options)


@pytest.fixture(scope="module", params=list(VERSIONS))
def hooked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Done:
    done = recorded(tmp_path_factory.mktemp("trl") / "hooked", version=request.param)
    assert done.code == 0, done.stderr[-3000:]
    return done


def test_injected_sleeps_come_back_in_their_phases(hooked: Done) -> None:
    analysis = analyse(load(str(hooked.folder) + ".run"))
    assert len(analysis.steps.numbers) == STEPS
    seconds = phase_seconds(analysis)
    truth = hooked.stopwatch
    function = named_seconds(analysis, "reward/length_reward")[:, 0].sum()
    used = len(analysis.steps.used) / STEPS
    assert function == pytest.approx(truth["reward"] * used, rel=0.05)
    # The phase also gathers the rewards of all ranks, and waits for them.
    assert truth["reward"] * 0.95 <= seconds["reward"] <= truth["reward"] * 1.3
    # Fetching has its own work beside the sleep; the first batch is fetched before the sleep ends.
    assert truth["dataload"] * 0.95 <= seconds["dataload"] <= truth["dataload"] * 1.3
    callback = unattributed_span_seconds(analysis)["callback/Journal.on_step_end"]
    per_step = truth["callback"] / STEPS
    assert callback == pytest.approx(per_step, rel=0.05)
    unnamed = analysis.share("unattributed") - callback / float(analysis.step_seconds.mean())
    assert unnamed < 0.05
    assert min(seconds["rollout"], seconds["logprob"], seconds["train"]) > 0


def test_a_callback_in_the_script_records_what_the_prefix_records(
    hooked: Done, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if hooked.version != NEWEST:
        pytest.skip("the tool is not installed in that environment")
    run_dir = tmp_path / "run"
    monkeypatch.setenv("OWN_RECORDING", str(run_dir))
    done = job(tmp_path / "own")
    assert done.code == 0, done.stderr[-3000:]
    assert done.losses == hooked.losses
    by_prefix, by_callback = load(f"{hooked.folder}.run"), load(run_dir)
    assert by_callback.names == by_prefix.names
    assert by_callback.run.knobs.keys() == by_prefix.run.knobs.keys()
    assert not by_callback.loss.notes
    analysis = analyse(by_callback)
    assert len(analysis.steps.numbers) == STEPS
    reward = float(analysis.seconds[:, 0, PHASES.index("reward")].sum())
    assert reward == pytest.approx(done.stopwatch["reward"], rel=0.05)
    assert analysis.share("unattributed") < 0.05 + done.stopwatch["callback"] / float(
        analysis.step_seconds.sum()
    )


@pytest.fixture(scope="module")
def failed(hooked: Done, tmp_path_factory: pytest.TempPathFactory) -> Done:
    """The same job, with a reward that raises in the end."""
    folder = tmp_path_factory.mktemp("trl") / "failed"
    return recorded(folder, version=hooked.version, fail_at=STEPS)


def test_a_failing_reward_ends_the_job_as_it_does_alone(hooked: Done, failed: Done) -> None:
    """`torch.distributed.run` ends with 1 when a rank has raised."""
    assert failed.losses == hooked.losses[: STEPS - 1]
    assert failed.code == 1
    assert "no reward for this one" in failed.stderr


def test_the_report_speaks_of_trl(hooked: Done) -> None:
    trace = load(str(hooked.folder) + ".run")
    assert (trace.run.framework, trace.run.knobs["rollout.num_generations"]) == ("trl", 4)
    assert trace.run.config["model_parameters"] > 0
    assert not trace.loss.notes


def test_losses_rewards_and_exit_code_are_those_of_the_job_alone(
    hooked: Done, tmp_path: Path
) -> None:
    alone = job(tmp_path / "alone", version=hooked.version)
    assert alone.code == 0
    assert alone.losses == hooked.losses
