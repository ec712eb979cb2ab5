"""`run`: what is refused before anything is started, and what is said at the end."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from grpo_doctor.cli import finish as finishing
from grpo_doctor.cli import main, run, watching
from grpo_doctor.cli.finish import Finished
from grpo_doctor.cli.watching import Aftermath
from grpo_doctor_probes.supervisor import launch as launching
from grpo_doctor_probes.supervisor import runfile
from grpo_doctor_probes.supervisor.job import Ended
from grpo_doctor_probes.supervisor.launch import Launch
from tests.unit.cli.attached import Captured


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What each launch was planned with; none of them starts."""
    wishes: list[dict[str, Any]] = []

    def plan(arguments: list[str], folder: Path, **wished: Any) -> None:
        wishes.append(wished)
        raise launching.CannotStartError("it is not to start")

    monkeypatch.setattr(launching, "plan", plan)
    return wishes


@pytest.mark.parametrize(
    ("arguments", "wished"),
    [
        (["--", "true"], {"hooks": True, "max_mb": None}),
        (["--no-hooks", "--", "true"], {"hooks": False}),
        (["--max-mb", "1", "--hang-after", "1", "--", "true"], {"max_mb": 1}),
        (["--hz", "100", "--", "true"], {"hooks": True}),
        (["--nproc", "1", "--hz", "0.01"], {"ranks": 1}),
    ],
)
def test_what_makes_sense_is_planned_as_it_was_said(
    planned: list[dict[str, Any]],
    arguments: list[str],
    wished: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", *arguments]) == 127
    (keywords,) = planned
    assert {name: keywords[name] for name in wished} == wished


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], f"{Path('grpo-doctor-out').absolute()}: No space left. Choose another with -o DIR."),
        (["-o", "a"], "a: No space left. Choose another with -o DIR."),
        (["--join", "a"], "a: No space left. Choose another with --join RUN."),
    ],
)
def test_a_folder_that_cannot_be_made_is_named(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def full(*_: object) -> Path:
        raise OSError(errno.ENOSPC, "No space left")

    monkeypatch.setattr(runfile, "create_run_dir", full)
    monkeypatch.setattr(runfile, "create_joined_dir", full)
    assert main(["run", *arguments, "--", "true"]) == 4
    assert f"can't make the run directory {message}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "watched", "reports"),
    [
        ([], True, [True]),
        (["--no-watchdog"], False, [True]),
        (["--no-report"], True, [False]),
        (["--join", "of-the-trainer"], False, []),
    ],
)
def test_a_job_is_watched_and_reported_on_unless_that_was_not_wanted(
    more: list[str],
    watched: bool,
    reports: list[bool],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    report_values: list[bool] = []

    def finish(folder: Path, end: Ended, aftermath: Aftermath, *, report: bool) -> Finished:
        report_values.append(report)
        return Finished(folder, end.code, end.state, None, None, None, aftermath)

    def with_flight_recorder(launch: Launch, *_: object) -> tuple[Launch, dict[str, str]]:
        return launch, {"TORCH_FR_BUFFER_SIZE": "2000"}

    monkeypatch.setattr(run, "finish", finish)
    monkeypatch.setattr(watching, "with_flight_recorder", with_flight_recorder)
    monkeypatch.chdir(tmp_path)
    folder = [] if "--join" in more else ["-o", "run"]
    assert main(["run", *folder, *more, "--no-live", "--no-check", "--", "true"]) == 0
    (written,) = tmp_path.rglob("run.json")
    recorded = json.loads(written.read_text()).get("flight_recorder", {})
    assert bool(recorded) is watched
    assert report_values == reports
    line = "the run's report shows what the server did: grpo-doctor report of-the-trainer"
    assert (line in capsys.readouterr().err) is (not reports)


@pytest.mark.parametrize(
    ("trace", "report", "lines"),
    [
        (None, None, []),
        ("t.json", None, ["trace   t.json", "report it with: grpo-doctor report run"]),
        ("t.json", "r.html", ["trace   t.json", "report  r.html"]),
        (None, "r.html", ["report  r.html"]),
    ],
)
def test_results_that_were_written(
    trace: str | None, report: str | None, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    monkeypatch.setattr(finishing, "inform", messages.append)
    paths = [Path(name) if name else None for name in (trace, report)]
    finishing._say_results(Path("run"), *paths)
    assert messages == lines


@pytest.mark.parametrize(
    ("code", "signal", "lines"),
    [
        (0, None, ["a remark"]),
        (3, None, ["a remark", "the job failed, exit code 3"]),
        (137, "SIGKILL", ["a remark", "the job failed (SIGKILL), exit code 137"]),
    ],
)
def test_how_the_job_ended(
    code: int, signal: str | None, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    monkeypatch.setattr(finishing, "say", messages.append)
    end: Any = SimpleNamespace(state="failed", code=code, signal=signal)
    finishing._say_end(end, cast(Any, SimpleNamespace(remarks=("a remark",))))
    assert messages == lines
