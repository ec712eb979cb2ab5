"""`grpo-doctor watch` without a browser."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from grpo_doctor.cli import main
from tests.recording import run_job
from tests.unit.cli.attached import Captured
from tests.unit.watch.test_serve import JOB


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A recorded run that has ended."""
    run_job(JOB, tmp_path / "run")
    return tmp_path / "run"


def test_json_is_one_snapshot(run: Path, capsys: Captured) -> None:
    assert main(["watch", "--json", str(run)]) == 0
    now = json.loads(capsys.readouterr().out)
    assert (now["run"], now["state"], len(now["steps"])) == ("run", "ended", 6)


def test_the_terminal_shows_a_run_until_it_ends(run: Path, capsys: Captured) -> None:
    assert main(["watch", "--tui", str(run)]) == 0
    text = capsys.readouterr().out
    assert "run · unknown · ended" in text
    assert "step 5" in text
    assert "no GPU is sampled" in text


def test_a_process_leads_to_its_run(
    run: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["watch", "--json", str(os.getpid())]) == 2
    assert "is of no recorded run" in capsys.readouterr().err
    monkeypatch.setattr(
        "grpo_doctor_probes.procs.procfs.read",
        lambda _: f"A=1\0GRPO_DOCTOR_RUN_DIR={run}\0".encode(),
    )
    assert main(["watch", "--json", str(os.getpid())]) == 0
