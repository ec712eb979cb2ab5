"""The folder of a run and its `run.json`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import cast

import pytest

from grpo_doctor_probes.supervisor.job import Ended, Job
from grpo_doctor_probes.supervisor.launch import Launch
from grpo_doctor_probes.supervisor.node import Node
from grpo_doctor_probes.supervisor.runfile import (
    RunFile,
    create_joined_dir,
    create_run_dir,
    remove_if_unused,
)


class Started:
    pid, started_ns, started_unix_ns = 77, 5, 6


def test_folders_are_called_by_the_launch_or_else_by_the_time_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda _: "20260101-000000")
    names = [create_run_dir(None).name for _ in range(3)]
    assert names == ["20260101-000000", "20260101-000000-2", "20260101-000000-3"]
    assert create_run_dir(None, Node(name="slurm-7.0")) == Path("grpo-doctor-out/slurm-7.0")


def test_a_folder_is_for_one_run_but_servers_may_have_joined_it_before(tmp_path: Path) -> None:
    run = tmp_path / "run"
    first, second = create_joined_dir(run), create_joined_dir(run)
    assert first != second
    assert first.parent == second.parent == run / "joined"
    assert create_run_dir(run) == run
    assert {entry.name for entry in run.iterdir()} == {"joined", "ranks", "hosts"}
    assert run.stat().st_mode & 0o777 == 0o700
    with pytest.raises(FileExistsError, match="is not empty"):
        create_run_dir(run)
    assert create_joined_dir(run).parent == run / "joined"
    (tmp_path / "other").mkdir()
    assert create_joined_dir(tmp_path / "other").is_dir()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").touch()
    with pytest.raises(FileExistsError, match="is not a run directory"):
        create_joined_dir(tmp_path / "photos")


def test_what_holds_nothing_is_taken_away_again(tmp_path: Path) -> None:
    joined = create_joined_dir(tmp_path / "run")
    remove_if_unused(joined)
    assert not (tmp_path / "run").exists()
    used = create_run_dir(tmp_path / "used")
    (used / "run.json").touch()
    remove_if_unused(used)
    assert (used / "run.json").exists()
    plain = create_run_dir(tmp_path / "plain")
    remove_if_unused(plain)
    assert not plain.exists()
    assert tmp_path.exists()


@pytest.mark.parametrize("arguments", [[], ["train.py", "--token", "x"]])
def test_run_json_says_how_it_began_and_how_it_ended(tmp_path: Path, arguments: list[str]) -> None:
    launch = Launch(("python", "train.py"), {}, bundled=False, world_size=None)
    file = RunFile(tmp_path, launch, arguments, cast(Job, Started()), "1.0")
    file.write()
    facts = json.loads((tmp_path / "run.json").read_text())
    assert "end" not in facts
    assert facts["command"][0] == (arguments[0] if arguments else "(no arguments)")
    assert (facts["job_pid"], facts["started_ns"], facts["started_unix_ns"]) == (77, 5, 6)
    file.write(Ended("killed", 137, "SIGKILL", 9), {"deaths": [1]})
    facts = json.loads((tmp_path / "run.json").read_text())
    assert facts["end"] == {"state": "killed", "code": 137, "signal": "SIGKILL", "ended_ns": 9}
    assert facts["deaths"] == [1]
