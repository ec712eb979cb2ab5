"""What gets started for what stands after `--`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from grpo_doctor_probes.record.rundir import HOOKS_VARIABLE, MAX_MB_VARIABLE, RUN_DIR_VARIABLE
from grpo_doctor_probes.supervisor import launch
from grpo_doctor_probes.supervisor.launch import STARTUP, CannotStartError, plan


@pytest.fixture(autouse=True)
def _trainer_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())


@pytest.mark.parametrize("arguments", [[], ["--max_steps", "3"]])
def test_flags_or_nothing_go_to_the_bundled_trainer(tmp_path: Path, arguments: list[str]) -> None:
    planned = plan(arguments, tmp_path, ranks=4)
    assert (planned.bundled, planned.world_size) == (True, 4)
    assert planned.command[0] == sys.executable
    assert "--nproc_per_node=4" in planned.command
    assert list(planned.command[-1 - len(arguments) :]) == ["grpo_doctor_trainer", *arguments]


def test_a_command_is_started_as_it_is(tmp_path: Path) -> None:
    planned = plan(["sleep", "--help"], tmp_path)
    assert planned.command == ("sleep", "--help")
    assert MAX_MB_VARIABLE not in planned.environment
    assert plan(["sleep"], tmp_path, max_mb=7).environment[MAX_MB_VARIABLE] == "7"
    assert (planned.bundled, planned.world_size) == (False, None)
    assert planned.environment[RUN_DIR_VARIABLE] == str(tmp_path.resolve())


@pytest.mark.parametrize(
    ("given", "hooks", "path"),
    [
        (None, True, f"{STARTUP}"),
        ("/a:/b", True, f"{STARTUP}:/a:/b"),
        ("", True, f"{STARTUP}"),
        ("/a", False, "/a"),
        (None, False, None),
    ],
)
def test_the_jobs_pythons_find_our_folder_first_if_they_are_to_be_watched(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: str | None,
    path: str | None,
    hooks: bool,
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if given is not None:
        monkeypatch.setenv("PYTHONPATH", given)
    monkeypatch.setenv(HOOKS_VARIABLE, "1")  # of a run around this one
    environment = plan(["sleep"], tmp_path, hooks=hooks).environment
    assert environment.get("PYTHONPATH") == path
    assert environment.get(HOOKS_VARIABLE) == ("1" if hooks else None)
    assert HOOKS_VARIABLE not in plan([], tmp_path, ranks=1).environment


@pytest.mark.parametrize(
    ("name", "exists", "hint"),
    [
        ("train.py", True, "start it with `python"),
        ("train.py", False, "Check the name"),
        ("train.sh", True, "Check the name"),
    ],
)
def test_a_file_that_is_no_program_has_a_hint(
    tmp_path: Path, name: str, hint: str, *, exists: bool
) -> None:
    if exists:
        (tmp_path / name).touch()
    with pytest.raises(CannotStartError, match=hint):
        plan([str(tmp_path / name)], tmp_path)


def test_what_the_trainer_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lacks = ("deepspeed", "peft")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in lacks else name)
    lacking = r"needs deepspeed, peft, which this Python .* pip install '\.\[trainer\]'"
    with pytest.raises(CannotStartError, match=lacking):
        plan([], tmp_path)


LISTED = {"": 0, "-1": 0, "0": 1, "GPU-a,GPU-b": 2, "0, ,2": 2}


@pytest.mark.parametrize(
    ("listed", "driver", "count"),
    [
        *((listed, 4, count) for listed, count in LISTED.items()),
        (None, 0, 0),
        (None, 4, 4),
    ],
)
def test_gpus_are_those_that_the_variable_names_or_else_that_the_driver_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: str | None, driver: int, count: int
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if listed is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    monkeypatch.setattr(launch, "gpu_count", lambda: driver)
    assert launch.visible_gpus() == count
    assert plan([], tmp_path).world_size == (count or launch.DEFAULT_RANKS_WITHOUT_GPU)
    assert plan([], tmp_path, ranks=7).world_size == 7
