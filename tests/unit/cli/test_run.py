"""`run`: what is refused before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_doctor.cli import main


@pytest.mark.parametrize("steps", ["", "x", "3:0", "3:", ":2", "-1", "1.5"])
def test_nonsense_for_profiled_steps_is_refused(
    steps: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["run", f"--torch-profile={steps}", "--", "true"])
    assert ended.value.code == 2
    assert "--torch-profile" in capsys.readouterr().err


def test_profiled_steps_need_hooks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--torch-profile", "3", "--no-hooks", "--", "true"]) == 2
    assert "--torch-profile needs the steps" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--join", "run"], "give the command of the server"),
        (["--join", "run", "--", "--model", "m"], "give the command of the server"),
        (["--join", "run", "-o", "other", "--", "true"], "--join and -o"),
        (["--join", "notes", "--", "true"], "is not a run directory"),
    ],
)
def test_a_join_that_makes_no_sense_is_refused(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").touch()
    assert main(["run", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert [entry.name for entry in tmp_path.iterdir()] == ["notes"]
