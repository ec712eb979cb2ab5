"""Classes of Ray actors, which arrive pickled by value in a process that runs one of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor_probes.supervisor.launch import STARTUP
from tests.unit.probes.hooks.hooked_job import TRAINER, recorded, run_job, span_names, step_numbers

# What Ray's worker does: it makes the class from a text of its own, under the module's name.
MANAGER = """
class FunctionActorManager:
    def _load_actor_class_from_gcs(self, text):
        scope = {"__name__": "transformers.trainer"}
        exec(text, scope)
        return type("Trainer", (scope["Trainer"],), {"__module__": "transformers.trainer"})
"""
# In the module of the framework, where `ray.remote` has replaced it.
REMOTE = """
class ActorClass:
    __ray_metadata__ = "what Ray knows"

Trainer = ActorClass()
"""
MODULES = {"ray._private.function_manager": MANAGER, "transformers.trainer": REMOTE}
ACTOR = f"""
from ray._private.function_manager import FunctionActorManager
import transformers.trainer

Actor = FunctionActorManager()._load_actor_class_from_gcs({TRAINER!r})
print(Actor().train())
"""


def test_an_actor_has_phases_in_its_own_process(tmp_path: Path) -> None:
    result = run_job(tmp_path, ACTOR, modules=MODULES)
    assert (result.returncode, result.stdout, result.stderr) == (0, "trained\n", "")
    trace = recorded(tmp_path)
    assert step_numbers(trace) == [1, 2, 3]
    assert [n for n in span_names(trace) if n in ("dataload", "train")] == ["dataload", "train"] * 3


def test_the_process_that_sends_the_class_wraps_nothing_of_it(tmp_path: Path) -> None:
    program = (
        "import ray._private.function_manager, transformers.trainer as t; print(vars(t.Trainer))"
    )
    result = run_job(tmp_path, program, modules=MODULES)
    assert (result.stdout, result.stderr) == ("{}\n", "")
    assert not (tmp_path / "run").exists()


def test_a_finder_of_the_users_sitecustomize_does_not_hide_modules(tmp_path: Path) -> None:
    own = """
    import sys
    from importlib.machinery import PathFinder

    class Own:
        def find_spec(self, name, path=None, target=None):
            return PathFinder.find_spec(name, path)

    sys.meta_path.insert(0, Own())
    """
    program = "from transformers.trainer import Trainer; print(Trainer().train())"
    modules = {"sitecustomize": own, "transformers.trainer": TRAINER}
    result = run_job(tmp_path, program, modules=modules)
    assert (result.returncode, result.stdout, result.stderr) == (0, "trained\n", "")
    assert step_numbers(recorded(tmp_path)) == [1, 2, 3]


def test_an_older_release_beside_the_job_is_not_what_is_loaded(tmp_path: Path) -> None:
    modules = {"grpo_doctor_probes.record.recorder": "", "transformers.trainer": TRAINER}
    program = "from transformers.trainer import Trainer; print(Trainer().train())"
    result = run_job(tmp_path, program, modules=modules)
    assert (result.returncode, result.stdout, result.stderr) == (0, "trained\n", "")
    assert step_numbers(recorded(tmp_path)) == [1, 2, 3]


CONNECTING = """
def init(address=None, *, runtime_env=None, num_cpus=None):
    return runtime_env
"""
SERVICES = """
def canonicalize_bootstrap_address(address, temp_dir=None):
    return None if address in (None, "local") else "10.0.0.1:6379"
"""
CLUSTER = {"ray._private.worker": CONNECTING, "ray._private.services": SERVICES}
INIT = "import ray._private.services; from ray._private.worker import init; "


def runtime_env(folder: Path, call: str, **environment: str) -> Any:
    program = f"{INIT} import json; print(json.dumps({call}))"
    result = run_job(folder, program, modules=CLUSTER, environment=environment)
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


SUBMITTING = """
class JobSubmissionClient:
    def submit_job(self, *, entrypoint, runtime_env=None):
        return runtime_env
"""


@pytest.mark.parametrize("own", ["None", "{}", "{'working_dir': '.', 'env_vars': {'A': '1'}}"])
def test_a_job_that_is_submitted_is_given_the_variables(own: str, tmp_path: Path) -> None:
    program = (
        "from ray.dashboard.modules.job.sdk import JobSubmissionClient; import json; "
        f"print(json.dumps(JobSubmissionClient().submit_job(entrypoint='x', runtime_env={own})))"
    )
    result = run_job(tmp_path, program, modules={"ray.dashboard.modules.job.sdk": SUBMITTING})
    given = json.loads(result.stdout)
    variables = given.pop("env_vars")
    assert variables["PYTHONPATH"] == f"{STARTUP}:${{PYTHONPATH}}"
    assert (variables["GRPO_DOCTOR"], variables.get("A")) == ("1", "1" if "A" in own else None)
    assert list(given) == (["working_dir"] if "working_dir" in own else [])
