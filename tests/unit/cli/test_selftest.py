"""The command around the jobs; the jobs themselves take a minute and are run by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_doctor.cli import main, selftest
from grpo_doctor.selftest import Case, Outcome, judge


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Jobs that end at once with what is true of them, but `garbage`, in which nothing is found."""
    made: list[Path] = []

    def outcome(case: Case, folder: Path) -> Outcome:
        made.append(folder)
        return judge(case, [] if case.name == "garbage" else sorted(case.has), 0.1)

    monkeypatch.setattr(selftest, "_outcome", outcome)
    return made


def test_every_job_once_and_all_right(
    folders: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["selftest", "straggler", "healthy", "straggler"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in out[:2]] == [["ok", "straggler"], ["ok", "healthy"]]
    assert out[2:] == ["2 of 2 right"]
    assert [folder.name for folder in folders] == ["straggler", "healthy"]


def test_what_is_missed_is_named_and_ends_with_1(
    folders: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["selftest", "garbage", "--json"]) == 1
    (case,) = json.loads(capsys.readouterr().out)["cases"]
    assert (case["right"], case["has"], case["found"]) == (False, ["GD024"], [])
    assert len(folders) == 1


def test_a_job_that_there_is_not_and_a_folder_in_use_are_wrong_usage(
    folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["selftest", "stragler"]) == 2
    assert "There are: healthy, straggler" in capsys.readouterr().err
    (tmp_path / "healthy").mkdir()
    assert main(["selftest", "healthy", "--keep", str(tmp_path)]) == 2
    assert "already a healthy" in capsys.readouterr().err
    assert folders == []
