"""`grpo-doctor treat` as a user calls it; its trials are made in code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.cli import main
from grpo_doctor.treat import session
from tests.unit.cli.attached import Captured
from tests.unit.treat.made_job import Job

SCRIPT = """\
swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-0.5B-Instruct --dataset data.jsonl \\
    --reward_funcs format \\
    --dataloader_num_workers 0 \\
    --output_dir mine
"""
DEMO = ("--dataloader_num_workers", "0")


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Job:
    made = Job()
    monkeypatch.setattr(session, "run_trial", made)
    monkeypatch.chdir(tmp_path)
    return made


def card(capfd: Captured) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capfd.readouterr().out)
    return found


def test_the_result_is_a_command_and_a_card(job: Job, tmp_path: Path, capfd: Captured) -> None:
    assert main(["treat", "-o", "out", "--json", "--", *DEMO]) == 0
    found = card(capfd)
    assert found["result"] == ["--dataloader_num_workers", "4"]
    assert json.loads((tmp_path / "out/treat.json").read_text()) == found
    page = (tmp_path / "out/treat.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "--dataloader_num_workers 4" in page
    assert "| 4 | `before --dataloader" in (tmp_path / "out/treat.md").read_text()


@pytest.mark.parametrize("write", [False, True])
def test_a_script_gets_a_patch_and_is_written_only_when_asked(
    write: bool, job: Job, tmp_path: Path, capfd: Captured
) -> None:
    job.framework = "ms-swift"
    (tmp_path / "data.jsonl").write_text('{"prompt": "1+1", "solution": "2"}\n')
    script = tmp_path / "train.sh"
    script.write_text(SCRIPT)
    options = ["--write"] if write else []
    assert main(["treat", "-o", "out", "--json", *options, "--", "bash", "train.sh"]) == 0
    found = card(capfd)
    assert "+    --dataloader_num_workers 4" in found["patch"]
    assert (tmp_path / "out/treat.patch").read_text() == found["patch"]
    after = SCRIPT.replace("workers 0", "workers 4")
    assert script.read_text() == (after if write else SCRIPT)


def test_ctrl_c_ends_with_the_best_so_far_and_the_folder_continues(
    job: Job, capfd: Captured
) -> None:
    def interrupt(number: int) -> None:
        if number == 2:
            raise KeyboardInterrupt

    job.on_trial = interrupt
    command = ["treat", "-o", "out", "--json", "--", *DEMO]
    assert main(command) == 130
    assert card(capfd)["state"] == "interrupted"
    job.on_trial = lambda _: None
    assert main(command) == 0
    assert card(capfd)["verdict"].startswith("Kept")
    assert main([*command[:-1], "1"]) == 2
    assert "another command" in capfd.readouterr().err


def test_a_dry_run_starts_and_writes_nothing(job: Job, tmp_path: Path, capfd: Captured) -> None:
    assert main(["treat", "-o", "out", "--dry-run", "--", *DEMO]) == 0
    assert "this is what a trial would be" in capfd.readouterr().out
    assert not job.trials
    assert not (tmp_path / "out").exists()


def test_a_job_without_steps_ends_with_eight(job: Job, capfd: Captured) -> None:
    job.ends = {0: "no steps"}
    assert main(["treat", "-o", "out", "--", *DEMO]) == 8
    assert "nothing could be measured" in capfd.readouterr().err
