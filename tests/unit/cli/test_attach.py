"""`attach`: what it says where, and the exit codes, with finding and looking played by the test."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from grpo_doctor.cli import main
from grpo_doctor.hang.collection.examine import ExamineOptions
from grpo_doctor.hang.model.hosts import command
from grpo_doctor.hang.verdict import Diagnosis, JobSeen, State
from grpo_doctor_probes import discover
from grpo_doctor_probes.evidence import Evidence, Job, PythonThread, Stack
from tests.unit.cli.attached import SUMMARY, Captured, Plays, diagnosis, job


@pytest.mark.parametrize(
    ("state", "code"), [("healthy", 0), ("slow", 0), ("stuck", 3), ("dead", 3)]
)
def test_the_exit_code_is_the_jobs_state(
    plays: Plays, capsys: Captured, state: State, code: int
) -> None:
    plays(job(), verdict=diagnosis(state))
    assert main(["attach"]) == code
    output = capsys.readouterr()
    assert output.out.splitlines()[0] == SUMMARY
    assert output.err.splitlines()[0] == "grpo-doctor: looking at 2 ranks ..."
    assert "\r" not in output.err
    assert ("-o DIR" in output.err) == (code == 3)


READ = Stack(4_700, 1, threads=(PythonThread(4_700, "MainThread", ()),))
CLOSED = Stack(4_701, 1, problem="Permission denied")
IN_PART = Stack(4_701, 1, threads=READ.threads, problem="one thread could not be read")


@pytest.mark.parametrize(
    ("stacks", "state", "code"),
    [
        ((), "slow", 0),
        (((),), "slow", 0),
        (((CLOSED, CLOSED), (CLOSED,)), "slow", 4),
        (((CLOSED, READ),), "slow", 0),
        (((CLOSED, IN_PART),), "slow", 0),
        (((CLOSED, Stack(4_700, 1)),), "slow", 0),  # a process without a Python thread
        (((CLOSED,),), "stuck", 3),
    ],
)
def test_where_no_stack_could_be_read_it_is_a_matter_of_permission(
    plays: Plays, stacks: tuple[tuple[Stack, ...], ...], state: State, code: int
) -> None:
    cause = "unknown" if state == "slow" else "rank-stopped"
    verdict = msgspec.structs.replace(diagnosis(state).verdict, cause=cause)
    plays(job(), verdict=diagnosis(state, verdict=verdict), stacks=stacks)
    assert main(["attach"]) == code


@pytest.mark.parametrize(("arguments", "stop"), [([], True), (["--no-stop"], False)])
def test_threads_are_only_stopped_where_that_was_not_forbidden(
    plays: Plays, monkeypatch: pytest.MonkeyPatch, arguments: list[str], stop: bool
) -> None:
    requests = plays(job())
    assert main(["attach", "1", "--seconds", "0.2", *arguments]) == 3
    assert requests == [ExamineOptions(stop=stop, seconds_between=0.2)]


@pytest.mark.parametrize(
    ("state", "confirm", "is_advised"),
    [("stuck", ("look closer",), True), ("stuck", (), True), ("healthy", (), False)],
)
def test_ranks_of_other_hosts_are_told_of_with_how_to_see_them(
    plays: Plays, capsys: Captured, state: State, confirm: tuple[str, ...], is_advised: bool
) -> None:
    four = replace(job(), world_size=4, ranks_missing=(2, 3))
    how = command(four)
    for said_already in (False, True):
        words = (*confirm, how) if said_already else confirm
        verdict = msgspec.structs.replace(diagnosis(state).verdict, confirm=words)
        plays(four, verdict=diagnosis(state, verdict=verdict))
        main(["attach"])
        output = capsys.readouterr().err
        assert ("on other hosts were not inspected" in output) is (is_advised and not said_already)
        assert (f"grpo-doctor:   {how}" in output) is (is_advised and not said_already)


def test_progress_is_taken_back_on_a_terminal(
    plays: Plays, monkeypatch: pytest.MonkeyPatch
) -> None:
    plays(job())
    own_end, theirs = os.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with open(theirs, "w", encoding="utf-8") as terminal:  # noqa: PTH123 - a descriptor
        monkeypatch.setattr(sys, "stderr", terminal)
        main(["attach", "--json"])
    shown = b""
    with contextlib.suppress(OSError):  # EIO: all of it was read
        while chunk := os.read(own_end, 4_096):
            shown += chunk
    os.close(own_end)
    assert shown == b"\r\x1b[Kgrpo-doctor: looking at 2 ranks ...\r\x1b[K"


def test_progress_leaves_the_last_column_of_a_terminal_free(
    plays: Plays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the last one the cursor would go to the next line, which nothing takes back."""
    plays(job(), says="looking at ranks " * 20)
    monkeypatch.setattr("grpo_doctor.cli.attach_evidence.color_wanted", lambda stream: True)
    monkeypatch.setenv("COLUMNS", "40")
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    main(["attach", "--json"])
    (line,) = [chunk for chunk in shown.getvalue().split("\r\x1b[K") if chunk]
    assert line == ("grpo-doctor: " + "looking at ranks " * 20)[:39]


def test_without_standard_error_the_verdict_is_said_all_the_same(
    plays: Plays, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    plays(job())
    with monkeypatch.context() as changed:
        changed.setattr(sys, "stderr", None)
        assert main(["attach"]) == 3
    assert capsys.readouterr().out.startswith(SUMMARY)


def test_where_ends_of_children_are_ignored_a_failure_is_still_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As some parents leave SIGCHLD: py-spy that fails would seem to have printed nothing."""
    codes: list[int] = []

    def find_jobs(pids: object, **_: object) -> tuple[Job, ...]:
        codes.append(subprocess.run(["false"], check=False).returncode)
        raise discover.NoJobError("none")

    monkeypatch.setattr("grpo_doctor.cli.attach_evidence.discover.find_jobs", find_jobs)
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert main(["attach"]) == 5
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert codes == [1]


def test_json_alone_is_on_standard_output_and_names_that_are_no_unicode_do_not_break_it(
    plays: Plays, capsys: Captured
) -> None:
    plays(job(), verdict=diagnosis(job=JobSeen(host="node\udcff")))
    assert main(["attach", "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert (document["verdict"]["class"], document["job"]["host"]) == ("rank-stopped", "node?")
    assert main(["attach"]) == 3


def test_ctrl_c_before_the_first_look(plays: Plays, capsys: Captured) -> None:
    plays(error=KeyboardInterrupt())
    assert main(["attach"]) == 130
    assert capsys.readouterr().err == "grpo-doctor: interrupted; the job was not touched.\n"


def test_ctrl_c_after_the_looks(
    plays: Plays, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread may have been borrowed by then."""

    def interrupted(evidence: Evidence) -> Diagnosis:
        raise KeyboardInterrupt

    plays(job())
    monkeypatch.setattr("grpo_doctor.hang.diagnose.diagnose_view", interrupted)
    assert main(["attach"]) == 130
    output = capsys.readouterr().err
    assert output.endswith("the job was not modified.\n")
    assert "not touched" not in output


def test_everything_that_was_asked_for_is_kept(
    plays: Plays, capsys: Captured, tmp_path: Path
) -> None:
    plays(job())
    out, page = tmp_path / "hang", tmp_path / "hang.html"
    assert main(["attach", "--out", str(out), "--html", str(page)]) == 3
    assert page.read_text().startswith("<!doctype html>")
    assert (out / "hang.html").read_bytes() == page.read_bytes()
    output = capsys.readouterr().err
    assert f"wrote {out}" in output
    assert "-o DIR" not in output
    assert main(["attach", "--replay", str(out), "--json"]) == 3
    replayed = json.loads(capsys.readouterr().out)
    assert replayed == json.loads((out / "verdict.json").read_bytes())


def test_a_result_that_cannot_be_written(plays: Plays, capsys: Captured) -> None:
    plays(job())
    assert main(["attach", "--html", "/nowhere/at/all.html"]) == 4
    output = capsys.readouterr()
    assert output.out.startswith(SUMMARY)  # the verdict is not lost with the file
    assert "can't write /nowhere/at/all.html" in output.err
