"""The command around the jobs; the jobs themselves take a minute and are run by hand."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from grpo_doctor.cli import main, selftest
from grpo_doctor.selftest import BUSY_MACHINE, Case, Outcome, judge
from grpo_doctor.trace.read import load
from grpo_doctor.trace.write import write_trace
from tests.unit.cli.attached import Captured
from tests.unit.findings.example_runs import run


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Jobs that end at once with what is true of them, but `garbage`, in which nothing is found."""
    made: list[Path] = []

    def outcome(case: Case, folder: Path) -> Outcome:
        made.append(folder)
        return judge(case, [] if case.name == "garbage" else sorted(case.has), 0.1)

    monkeypatch.setattr(selftest, "_outcome", outcome)
    return made


def test_every_job_once_and_all_right(folders: list[Path], capsys: Captured) -> None:
    assert main(["selftest", "straggler", "healthy", "straggler"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in out[:2]] == [["ok", "straggler"], ["ok", "healthy"]]
    assert out[2:] == ["2 of 2 right"]
    assert [folder.name for folder in folders] == ["straggler", "healthy"]


def test_what_is_missed_is_named_and_ends_with_1(folders: list[Path], capsys: Captured) -> None:
    assert main(["selftest", "garbage", "--json"]) == 1
    out, err = capsys.readouterr()
    assert "selftest --keep DIR" in err
    (case,) = json.loads(out)["cases"]
    assert (case["right"], case["has"], case["found"]) == (False, ["GD024"], [])
    assert len(folders) == 1


BUSY = frozenset({BUSY_MACHINE})
FAULT = Case("fault", "something is wrong", frozenset({"GD001", "GD002"}), BUSY)
RIGHT = Case("healthy", "right")
WANTED = "fault          something is wrong; wanted GD001 or GD002, "
BUSY_WORDS = "GD023 (other programs keep this machine busy)"


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (judge(FAULT, ["GD002"], 0.1), f"ok    {WANTED}found GD002"),
        (judge(FAULT, [], 0.1), f"FAIL  {WANTED}found nothing"),
        (judge(FAULT, ["GD001", BUSY_MACHINE], 0.1), f"ok    {WANTED}found GD001, {BUSY_WORDS}"),
        (Outcome(FAULT, problem="exit code 1: no space"), f"FAIL  {WANTED}exit code 1: no space"),
        (judge(RIGHT, [], 0.1), "ok    healthy        right; wanted nothing, found nothing"),
    ],
)
def test_a_line_says_what_was_wanted_and_what_was_found(
    outcome: Outcome, line: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(selftest, "_outcome", lambda case, folder: outcome)
    main(["selftest", "healthy"])
    assert capsys.readouterr().out.splitlines()[0] == line


@pytest.mark.parametrize(("code", "right"), [(0, True), (3, False)])
def test_a_job_is_recorded_judged_and_timed(
    code: int, right: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    commands: list[list[str]] = []

    def started(command: list[str], **_: object) -> SimpleNamespace:
        commands.append(command)
        write_trace(run().build(), tmp_path / "healthy.json")
        return SimpleNamespace(returncode=code, stderr="no such file")

    monkeypatch.setattr("subprocess.run", started)
    monkeypatch.setattr("grpo_doctor.trace.read.load", lambda _: load(tmp_path / "healthy.json"))
    assert main(["selftest", "healthy", "--json"]) == (0 if right else 1)
    (case,) = json.loads(capsys.readouterr().out)["cases"]
    assert (case["right"], case["found"]) == (right, [])
    assert (case["problem"] or "").startswith("exit code 3: no such file") is not right
    assert (0 < case["seconds"] < 60) is right
    (command,) = commands
    assert command[-1] == "healthy"
    assert "--no-report" in command
