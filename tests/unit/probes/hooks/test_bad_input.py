"""The hooks in jobs that nobody writes on purpose, and that somebody has."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor_probes.supervisor.launch import STARTUP
from tests.recording import VERSIONS, interpreter
from tests.unit.probes.hooks.hooked_job import TRAINER, recorded, run_job, step_numbers
from tests.unit.probes.hooks.test_trl import GRPO
from tests.unit.probes.hooks.test_trl import JOB as TRL_JOB
from tests.unit.probes.hooks.test_verl_async import PROFILER

TRAIN = """
from transformers.trainer import Trainer
print(Trainer().train())
"""
VERL = """
from verl.utils.debug import marked_timer
from verl.utils.tracking import Tracking

class PPOTrainer:
    def init(self): ...

    def fit(self):
        Tracking("p", "e", "console", config={"actor_rollout_ref": {}})
        for self.global_steps in (1, 2, 3):
            with marked_timer("step", {}):
                pass
"""
TRACKING = "class Tracking:\n    def __init__(self, *names, config): pass"
VERL_JOB = """
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
trainer = PPOTrainer()
trainer.init()
trainer.fit()
"""
MODULES = {"transformers.trainer": TRAINER}
BOTH = {
    **MODULES, "trl.trainer.grpo_trainer": GRPO, "verl.utils.debug": PROFILER,
    "verl.utils.tracking": TRACKING, "verl.trainer.ppo.v1.trainer_base": VERL,
}  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_every_python_is_hooked(tmp_path: Path, version: str) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    result = run_job(
        tmp_path, TRAIN, modules=MODULES, python=python, options=("-X", "dev", "-W", "error")
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "trained\n", "")
    assert step_numbers(recorded(tmp_path)) == [1, 2, 3]


def test_a_framework_that_is_only_imported_is_not_missed(tmp_path: Path) -> None:
    importing = "import verl.trainer.ppo.v1.trainer_base, verl.utils.debug"
    result = run_job(tmp_path, importing + TRL_JOB, modules=BOTH)
    assert result.returncode == 0, result.stderr
    trace = recorded(tmp_path)
    assert (trace.run.framework, step_numbers(trace)) == ("trl", [1, 2])
    assert [process.role for process in trace.processes] == ["trainer"]
    assert not any("verl" in note for note in trace.loss.notes)


def test_of_two_frameworks_that_train_one_after_the_other_the_last_is_the_run(
    tmp_path: Path,
) -> None:
    result = run_job(tmp_path, TRL_JOB + VERL_JOB, modules=BOTH)
    assert result.returncode == 0, result.stderr
    trace = recorded(tmp_path)
    assert step_numbers(trace) == [1, 2, 1, 2, 3]
    assert trace.run.framework == "verl"
    assert analyse(trace).steps.numbers.tolist() == [1, 2, 3]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_job_that_empties_its_environment_is_recorded(tmp_path: Path, when: str) -> None:
    clear = "import os; os.environ.clear()\n"
    lines = TRAIN.strip().replace("print(", clear * (when == "after") + "print(")
    result = run_job(
        tmp_path, clear * (when == "before") + lines, modules=MODULES, environment={"RANK": "3"}
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "trained\n", "")
    trace = recorded(tmp_path)
    assert (trace.ranks, step_numbers(trace)) == ((3,), [1, 2, 3])


def test_a_child_that_is_started_with_no_environment_runs_unseen(tmp_path: Path) -> None:
    program = f"""
    import subprocess, sys
    train = "import sys; sys.path.insert(0, 'packages')\\n" + {TRAIN!r}
    sys.exit(subprocess.run([sys.executable, "-c", train], env={{}}).returncode)
    """
    result = run_job(tmp_path, program, modules=MODULES)
    assert (result.returncode, result.stdout, result.stderr) == (0, "trained\n", "")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("option", ["-I", "-E"])
def test_python_that_is_executed_anew_without_the_environments_path(
    tmp_path: Path, option: str
) -> None:
    """With the line that the installed package has among the files of its environment."""
    line = (STARTUP.parents[2] / "grpo_doctor_hooks.pth").read_text()
    child = f"exec({line!r}); import sys; sys.path.insert(0, 'packages')\n{TRAIN}"
    program = f"""
    import os, sys
    os.execv(sys.executable, [sys.executable, {option!r}, "-c", {child!r}])
    """
    result = run_job(tmp_path, program, modules=MODULES)
    assert (result.returncode, result.stdout) == (0, "trained\n"), result.stderr
    assert step_numbers(recorded(tmp_path)) == [1, 2, 3]


RESTARTED = """
import os, sys
from transformers.trainer import Trainer

class Actor(Trainer):
    def training_step(self):
        super().training_step()
        if sys.argv[1:] == ["dies"] and self.state.global_step == 1:
            os._exit(1)

Actor().train()
"""


def test_an_actor_that_is_started_again_records_beside_what_it_left(tmp_path: Path) -> None:
    """As Ray does with `max_restarts`: another process, with the environment of the first."""
    starting = """
    import subprocess, sys
    for arguments in (["dies"], []):
        print(subprocess.run([sys.executable, "actor.py", *arguments]).returncode, flush=True)
    """
    (tmp_path / "actor.py").write_text(RESTARTED)
    environment = {"RANK": "0", "WORLD_SIZE": "1"}
    result = run_job(tmp_path, starting, modules=MODULES, environment=environment)
    assert (result.stdout, result.stderr) == ("1\n0\n", "")
    trace = recorded(tmp_path)
    assert [(p.rank, p.role, p.state) for p in trace.processes] == [
        (0, "trainer", "open"), (0, "trainer", "finished"),
    ]  # fmt: skip
    assert step_numbers(trace) == [1, 2, 1, 2, 3]
    assert analyse(trace).steps.numbers.tolist() == [1, 2, 3]
