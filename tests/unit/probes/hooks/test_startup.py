"""What the hooks do to any Python of a job, whatever it is started as and however odd it is."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.trace.jsonfile import read_lines
from grpo_doctor.trace.model import Trace
from grpo_doctor_probes.hooks.boot import ADAPTERS
from grpo_doctor_probes.supervisor.launch import STARTUP
from tests.recording import VERSIONS, interpreter
from tests.unit.probes.hooks.hooked_job import TRAINER, recorded, run_job, span_names, step_numbers

TRAIN = """
from transformers.trainer import Trainer
print(Trainer().train())
"""
GRPO = """
from transformers.trainer import Trainer

class GRPOTrainer(Trainer):
    def __init__(self, reward_funcs):
        super().__init__(steps=2, reward_funcs=reward_funcs)

    def training_step(self):
        self._prepare_inputs()
        return super().training_step()

    def _prepare_inputs(self):
        self._generate_and_score_completions()

    def _generate_and_score_completions(self):
        self._tokenize_prompts()
        self._generate()
        self._get_per_token_logps_and_entropies(self.state)
        self._calculate_rewards()

    def _tokenize_prompts(self): ...
    def _generate(self): ...
    def _get_per_token_logps_and_entropies(self, model): ...

    def _calculate_rewards(self):
        return [reward() for reward in self.reward_funcs]

    def compute_loss(self):
        self._get_per_token_logps_and_entropies(self.state)
"""
TRL_JOB = """
from trl.trainer.grpo_trainer import GRPOTrainer

class Judge:
    def __call__(self):
        return 1.0

def accuracy():
    return 0.0

GRPOTrainer([accuracy, Judge()]).train()
"""
MODULES = {"transformers.trainer": TRAINER}


def trained(folder: Path, program: str = TRAIN, **more: Any) -> Trace:
    """What a job leaves that trains as it would without us."""
    result = run_job(folder, program, **{"modules": MODULES, **more})
    assert (result.returncode, result.stdout, result.stderr) == (0, "trained\n", "")
    return recorded(folder)


@pytest.mark.parametrize(
    ("program", "code", "text"),
    [
        ("raise ValueError('boom')", 1, "ValueError: boom"),
        ("import sys; sys.excepthook = lambda *_: None; 1 / 0", 1, "ZeroDivisionError: "),
        ("import sys\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    sys.exit(7)", 7, ""),
        ("raise KeyboardInterrupt", -2, ""),
        ("import os; os._exit(3)", 3, ""),
        ("print('well')", 0, ""),
    ],
)
def test_the_error_that_ends_a_script_is_kept_and_its_exit_code_and_output_are_its_own(
    program: str, code: int, text: str, tmp_path: Path
) -> None:
    alone = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    result = run_job(tmp_path, program, environment={"GRPO_DOCTOR_RUN_DIR": str(tmp_path)})
    assert (result.returncode, result.stdout) == (alone.returncode, alone.stdout)
    assert result.returncode == code
    assert result.stderr.splitlines()[-1:] == alone.stderr.splitlines()[-1:]
    rows, _ = read_lines(tmp_path / "errors.jsonl")
    assert [str(row["text"])[: len(text)] for row in rows] == ([text] if text else [])


def test_the_users_own_sitecustomize_still_runs_and_is_the_one_that_is_imported(
    tmp_path: Path,
) -> None:
    own = {"sitecustomize": "import os; os.environ['MINE'] = 'ran'"}
    program = (
        "import os, sitecustomize; print(os.environ['MINE'], 'packages' in sitecustomize.__file__)"
    )
    result = run_job(tmp_path, program, modules=own)
    assert (result.stdout, result.stderr) == ("ran True\n", "")
    broken = {"sitecustomize": "import nothing_of_that_name"}
    result = run_job(tmp_path, "print('goes on')", modules=broken)
    assert result.stdout == "goes on\n"
    assert "nothing_of_that_name" in result.stderr


FINDER = """
import sys
from importlib.machinery import PathFinder

class Own:
    def find_spec(self, name, path=None, target=None):
        return PathFinder.find_spec(name, path)

sys.meta_path.insert(0, Own())
"""


@pytest.mark.parametrize(
    "beside",
    [{"sitecustomize": FINDER}, {"grpo_doctor_probes.record.recorder": ""}],
    ids=["a finder of the user's", "an older release"],
)
def test_what_is_beside_the_job_hides_nothing(tmp_path: Path, beside: dict[str, str]) -> None:
    trace = trained(tmp_path, modules={**MODULES, **beside})
    assert step_numbers(trace) == [1, 2, 3]
    assert [n for n in span_names(trace) if n in ("dataload", "train")] == ["dataload", "train"] * 3


def test_nothing_of_the_tool_is_on_the_path_or_loaded_before_it_is_needed(tmp_path: Path) -> None:
    program = """
    import sys
    print([entry for entry in sys.path if "startup" in entry])
    print([name for name in sys.modules if name.startswith("grpo_doctor")])
    """
    result = run_job(tmp_path, program)
    assert result.stdout == "[]\n[]\n"


@pytest.mark.parametrize("switched_off", [{"GRPO_DOCTOR": ""}, {"GRPO_DOCTOR": "0"}])
def test_without_the_variable_nothing_is_watched(
    tmp_path: Path, switched_off: dict[str, str]
) -> None:
    program = "import sys, transformers.trainer; print([type(f).__name__ for f in sys.meta_path])"
    result = run_job(tmp_path, program, modules=MODULES, environment=switched_off)
    assert "FirstImport" not in result.stdout
    assert "ImportWatcher" not in result.stdout
    assert not (tmp_path / "run").exists()


def test_the_bundled_trainer_is_left_to_its_own_phases(tmp_path: Path) -> None:
    program = "import grpo_doctor_trainer\n" + TRAIN.lstrip()
    own = {**MODULES, "grpo_doctor_trainer.loop": ""}
    result = run_job(tmp_path, program, modules=own)
    assert result.stdout == "trained\n"
    assert not (tmp_path / "run").exists()


def test_children_that_are_spawned_or_forked_are_hooked_too(tmp_path: Path) -> None:
    program = """
    import multiprocessing, sys

    def child():
        from transformers.trainer import Trainer
        Trainer(steps=1).train()

    if __name__ == "__main__":
        process = multiprocessing.get_context(METHOD).Process(target=child)
        process.start()
        process.join()
        sys.exit(process.exitcode)
    """
    for method in ("spawn", "fork"):
        folder = tmp_path / method
        folder.mkdir()
        result = run_job(folder, program.replace("METHOD", repr(method)), modules=MODULES)
        assert result.returncode == 0, result.stderr
        assert step_numbers(recorded(folder)) == [1]


def test_a_version_from_tomorrow_runs_and_says_what_is_not_seen(tmp_path: Path) -> None:
    tomorrow = TRAINER.replace("def training_step", "def advance").replace(
        "self.training_step()", "self.advance()"
    )
    trace = trained(tmp_path, modules={"transformers.trainer": tomorrow})
    assert "train" not in span_names(trace)
    assert any(
        note.startswith("phase `train` is not seen in this version of transformers")
        for note in trace.loss.notes
    )
    assert not any("`dataload`" in note for note in trace.loss.notes)


def test_a_class_keeps_its_signature_documentation_and_pickles(tmp_path: Path) -> None:
    program = """
    import inspect, pickle
    from transformers.trainer import Trainer
    print(inspect.signature(Trainer.get_batch_samples), Trainer.training_step.__doc__)
    print(Trainer.train.__qualname__, pickle.loads(pickle.dumps(Trainer.train)) is Trainer.train)
    """
    result = run_job(tmp_path, program, modules=MODULES)
    assert result.stdout == "(self, iterator, count) One micro-batch.\nTrainer.train True\n"


def test_without_a_run_directory_the_first_process_chooses_one(tmp_path: Path) -> None:
    result = run_job(
        tmp_path, TRAIN, modules=MODULES,
        environment={"GRPO_DOCTOR_RUN_DIR": "", "SLURM_JOB_ID": "77"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert list((tmp_path / "grpo-doctor-out" / "slurm-77" / "ranks").glob("*.spans"))


def test_the_packages_that_wake_the_hooks_are_those_with_an_adapter() -> None:
    assert runpy.run_path(str(STARTUP / "sitecustomize.py"))["PACKAGES"] == set(ADAPTERS)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_python_is_hooked(tmp_path: Path, version: str) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    trace = trained(tmp_path, python=python, options=("-X", "dev", "-W", "error"))
    assert step_numbers(trace) == [1, 2, 3]


def test_a_framework_that_is_only_imported_is_not_missed(tmp_path: Path) -> None:
    verl = {"verl.trainer.ppo.v1.trainer_base": "", "verl.utils.debug": "marked_timer = print"}
    program = f"import {', '.join(verl)}" + TRL_JOB
    result = run_job(
        tmp_path, program, modules={**MODULES, "trl.trainer.grpo_trainer": GRPO, **verl}
    )
    assert result.returncode == 0, result.stderr
    trace = recorded(tmp_path)
    assert (trace.run.framework, step_numbers(trace)) == ("trl", [1, 2])
    assert [process.role for process in trace.processes] == ["trainer"]
    assert not any("verl" in note for note in trace.loss.notes)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_job_that_empties_its_environment_is_recorded(tmp_path: Path, when: str) -> None:
    clear = "import os; os.environ.clear()\n"
    lines = TRAIN.strip().replace("print(", clear * (when == "after") + "print(")
    trace = trained(tmp_path, clear * (when == "before") + lines, environment={"RANK": "3"})
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


def test_a_step_has_the_phases_of_grpo_in_their_order(tmp_path: Path) -> None:
    modules = {"transformers.trainer": TRAINER, "trl.trainer.grpo_trainer": GRPO}
    result = run_job(tmp_path, TRL_JOB, modules=modules)
    assert result.returncode == 0, result.stderr
    trace = recorded(tmp_path)
    names = span_names(trace)
    assert names[-10:] == [  # of the second step
        "dataload", "rollout", "rollout/encode", "rollout/generate", "logprob/old",
        "reward", "reward/accuracy", "reward/Judge", "train", "train/loss",
    ]  # fmt: skip
    assert trace.run.framework == "trl"
