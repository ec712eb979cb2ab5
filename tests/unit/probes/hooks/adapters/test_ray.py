"""Variables for workers of a cluster that ran before the job, and actors' classes as they load."""

from __future__ import annotations

import copy
import json
import sys
from types import ModuleType
from typing import Any

import pytest

from grpo_doctor_probes.supervisor.launch import STARTUP
from tests.unit.probes.hooks.adapters.framework import Job, hooked

CONNECTING = """
def init(address=None, *, runtime_env=None, num_cpus=None):
    return runtime_env
"""
PATH = f"{STARTUP}:${{PYTHONPATH}}"
OURS = {"GRPO_DOCTOR": "1", "PYTHONPATH": PATH}


@pytest.fixture
def init(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`ray.init`, where a cluster is at every address but the job's own."""
    services: Any = ModuleType("ray._private.services")
    services.canonicalize_bootstrap_address = lambda address: (
        None if address in (None, "local") else "10.0.0.1:6379"
    )
    monkeypatch.setitem(sys.modules, "ray._private.services", services)
    for name in ("GRPO_DOCTOR_RUN_DIR", "RAY_JOB_CONFIG_JSON_ENV_VAR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GRPO_DOCTOR", "1")
    return hooked("ray._private.worker", CONNECTING).init


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((), {}, None),
        (("local",), {}, None),
        ((), {"address": "local", "runtime_env": {"pip": []}}, {"pip": []}),
        (("auto",), {"runtime_env": "of another kind"}, "of another kind"),
        ((), {"runtime_env": "of another kind"}, "of another kind"),
        (("auto",), {}, {"env_vars": OURS}),
        ((), {"address": "auto"}, {"env_vars": OURS}),
        (
            ("auto",),
            {"runtime_env": {"pip": [], "env_vars": {"MINE": "x", "PYTHONPATH": "/mine"}}},
            {"pip": [], "env_vars": {**OURS, "MINE": "x", "PYTHONPATH": f"{STARTUP}:/mine"}},
        ),
        (("auto",), {"runtime_env": {"env_vars": None}}, {"env_vars": OURS}),
    ],
)  # fmt: skip
def test_workers_that_lack_the_variables_are_given_them(
    job: Job, init: Any, args: tuple[str, ...], kwargs: dict[str, Any], expected: Any
) -> None:
    before = copy.deepcopy(kwargs)
    assert init(*args, **kwargs) == expected
    assert (kwargs, job.errors) == (before, 0)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("", OURS.keys()),
        ({}, OURS.keys()),
        ({"runtime_env": None}, OURS.keys()),
        ({"runtime_env": {"env_vars": None}}, OURS.keys()),
        ({"runtime_env": {"env_vars": {"OTHER": "1"}}}, OURS.keys()),
        ({"runtime_env": {"env_vars": {"PYTHONPATH": "/a"}}}, {"GRPO_DOCTOR"}),
    ],
)
def test_what_the_job_was_submitted_with_is_not_said_again(
    job: Job, init: Any, monkeypatch: pytest.MonkeyPatch, config: Any, expected: set[str]
) -> None:
    text = "" if config == "" else json.dumps(config)
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", text)
    assert init("auto")["env_vars"].keys() == expected
    assert job.errors == 0


def test_a_ray_of_another_shape_is_called_as_it_would_be(
    job: Job, init: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "ray._private.services")
    assert init("auto", runtime_env={"pip": []}) == {"pip": []}
    assert job.errors == 1


SUBMITTING = """
class JobSubmissionClient:
    def submit_job(self, *, entrypoint, runtime_env=None):
        return runtime_env
"""


@pytest.mark.parametrize("own", [None, {}, {"working_dir": ".", "env_vars": {"A": "1"}}])
def test_a_job_that_is_submitted_is_given_the_variables(
    job: Job, init: Any, own: dict[str, Any] | None
) -> None:
    client = hooked("ray.dashboard.modules.job.sdk", SUBMITTING).JobSubmissionClient()
    given = client.submit_job(entrypoint="x", runtime_env=own)
    expected = {**(own or {}), "env_vars": {**(own or {}).get("env_vars", {}), **OURS}}
    assert (given, job.errors) == (expected, 0)


MANAGER = """
class FunctionActorManager:
    def _load_actor_class_from_gcs(self, given):
        return given
"""


def test_a_class_is_hooked_when_it_loads(job: Job) -> None:
    manager = hooked("ray._private.function_manager", MANAGER).FunctionActorManager()
    kind = type(
        "Trainer", (), {"__module__": "transformers.trainer", "evaluate": lambda self: "evaluated"}
    )
    assert manager._load_actor_class_from_gcs(kind)().evaluate() == "evaluated"
    assert manager._load_actor_class_from_gcs("no class") == "no class"
    assert (job.spans, job.errors) == (["eval"], 0)
