"""`GrpoDoctorCallback`: phases of a Trainer that was imported before anything of the tool."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.unit.probes.hooks.hooked_job import (
    TRAINER,
    recorded,
    run_job,
    span_names,
    step_numbers,
    write_packages,
)

# As in transformers, the package imports its trainer and callbacks are kept by a handler.
PACKAGE = """
class TrainerCallback:
    def on_step_end(self): ...

from transformers.trainer import Trainer
"""
LATE = """
from transformers import Trainer
from grpo_doctor_probes.callback import GrpoDoctorCallback
"""
WITHOUT_PREFIX = {"GRPO_DOCTOR": "", "GRPO_DOCTOR_RUN_DIR": ""}


def run_script(
    folder: Path, program: str, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    packages = folder / "packages"
    packages.mkdir()
    write_packages(packages, {"transformers.trainer": TRAINER})
    (packages / "transformers" / "__init__.py").write_text(PACKAGE)
    return run_job(folder, LATE + program, environment=environment)


def test_a_script_that_makes_one_has_steps_phases_and_rewards(tmp_path: Path) -> None:
    program = """
def accuracy():
    return 1.0

trainer = Trainer(reward_funcs=[accuracy])
GrpoDoctorCallback("run")
print(trainer.train())
"""
    result = run_script(tmp_path, program, WITHOUT_PREFIX)
    assert (result.returncode, result.stdout, result.stderr) == (0, "trained\n", "")
    trace = recorded(tmp_path)
    assert step_numbers(trace) == [1, 2, 3]
    assert span_names(trace) == ["dataload", "train", "reward/accuracy"] * 3
    assert trace.run.config["num_generations"] == 4
    assert not any("`train`" in note for note in trace.loss.notes)


@pytest.mark.parametrize("count", [1, 2])
def test_under_the_prefix_or_made_twice_each_step_and_span_is_there_once(
    tmp_path: Path, count: int
) -> None:
    environment = {} if count == 1 else {"GRPO_DOCTOR": "", "GRPO_DOCTOR_RUN_DIR": "run"}
    program = f"for _ in range({count}): GrpoDoctorCallback()\nTrainer().train()"
    result = run_script(tmp_path, program, environment)
    assert (result.returncode, result.stderr) == (0, "")
    trace = recorded(tmp_path)
    assert step_numbers(trace) == [1, 2, 3]
    assert span_names(trace) == ["dataload", "train"] * 3


def test_without_a_run_directory_nothing_is_wrapped_or_written(tmp_path: Path) -> None:
    program = """
GrpoDoctorCallback()
Trainer().train()
import sys
print(hasattr(Trainer.train, "__wrapped__"), [type(f).__name__ for f in sys.meta_path][:1])
"""
    result = run_script(tmp_path, program, WITHOUT_PREFIX)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("False")
    assert "ImportWatcher" not in result.stdout
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_written_to_is_said_and_the_job_goes_on(tmp_path: Path) -> None:
    program = "open('run', 'w').close(); GrpoDoctorCallback('run'); print(Trainer().train())"
    result = run_script(tmp_path, program, WITHOUT_PREFIX)
    assert (result.returncode, result.stdout) == (0, "trained\n")
    assert "grpo-doctor: not recording this process" in result.stderr
