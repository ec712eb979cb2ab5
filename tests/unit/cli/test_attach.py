"""`attach`: what it says where, and the exit codes, with finding and looking played by the test."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from grpo_doctor.cli import main
from grpo_doctor.hang.collection.examine import Wishes
from grpo_doctor.hang.model.hosts import commands
from grpo_doctor.hang.verdict import Diagnosis, RankState, State, Undo, Verdict
from grpo_doctor_probes import discover
from grpo_doctor_probes.evidence import Evidence, Job, Member, PythonThread, Stack
from tests.dumps.formats import dumps as dumps_of
from tests.dumps.simulator import WORLD, Call
from tests.dumps.simulator import job as simulated

SUMMARY = "Rank 1 is stopped (SIGSTOP); rank 0 waits for it in all_reduce."


def job(first_pid: int = 4_700, command: str = "python train.py") -> Job:
    members = (
        Member(first_pid + rank, 1, 100, "rank", "python", command, rank=rank) for rank in (0, 1)
    )
    return Job("node-7", tuple(members), 2)


def diagnosis(state: State = "stuck", **fields: object) -> Diagnosis:
    cause = "" if state == "healthy" else "rank-stopped"
    verdict = Verdict(
        state=state, cause=cause, culprits=(1,), victims=(0,), confidence=0.9, summary=SUMMARY
    )
    ranks = (RankState(1, 4_701, "rank", "stopped", "train.py:3", ""),)
    default = Diagnosis("node-7", "unknown", 2, (0, 1), (), verdict, ranks, 2.0, 0.5)
    return msgspec.structs.replace(default, **fields)


@pytest.fixture
def plays(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes finding, looking and reasoning give what the test wants."""

    def play(*jobs: Job, verdict: Diagnosis | None = None, error: Exception | None = None) -> None:
        def find_jobs(pids: object) -> tuple[Job, ...]:
            if error:
                raise error
            return jobs

        def examine_job(target: Job, wishes: object, progress: Callable[[str], None]) -> Evidence:
            progress("looking at 2 ranks")
            return Evidence(target, 1_795_000_000_000_000_000)

        monkeypatch.setattr("grpo_doctor.cli.visit.discover.find_jobs", find_jobs)
        monkeypatch.setattr("grpo_doctor.cli.visit.examine_job", examine_job)
        monkeypatch.setattr(
            "grpo_doctor.hang.diagnose.diagnose_scene", lambda target: verdict or diagnosis()
        )

    return play


Said = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("state", "code"), [("healthy", 0), ("slow", 0), ("stuck", 3), ("dead", 3)]
)
def test_the_exit_code_is_the_jobs_state(
    plays: Callable[..., None], capsys: Said, state: State, code: int
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
    plays: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    stacks: tuple[tuple[Stack, ...], ...],
    state: State,
    code: int,
) -> None:
    cause = "unknown" if state == "slow" else "rank-stopped"
    verdict = msgspec.structs.replace(diagnosis(state).verdict, cause=cause)
    plays(job(), verdict=diagnosis(state, verdict=verdict))
    monkeypatch.setattr(
        "grpo_doctor.cli.visit.examine_job",
        lambda target, wishes, progress: Evidence(target, 1, stacks=stacks),
    )
    assert main(["attach"]) == code


@pytest.mark.parametrize(("arguments", "inject"), [([], True), (["--no-inject"], False)])
def test_threads_are_only_stopped_where_that_was_not_forbidden(
    plays: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    inject: bool,
) -> None:
    requests: list[Wishes] = []

    def examine_job(target: Job, wishes: Wishes, progress: object) -> Evidence:
        requests.append(wishes)
        return Evidence(target, 1)

    plays(job())
    monkeypatch.setattr("grpo_doctor.cli.visit.examine_job", examine_job)
    assert main(["attach", "1", "--seconds", "0.2", *arguments]) == 3
    assert requests == [Wishes(inject=inject, seconds_between=0.2)]


@pytest.mark.parametrize(
    ("state", "confirm", "is_advised"),
    [("stuck", ("look closer",), True), ("stuck", (), True), ("healthy", (), False)],
)
def test_ranks_of_other_hosts_are_told_of_with_how_to_see_them(
    plays: Callable[..., None],
    capsys: Said,
    state: State,
    confirm: tuple[str, ...],
    is_advised: bool,
) -> None:
    four = replace(job(), world_size=4, ranks_missing=(2, 3))
    how = commands(four)[0]
    for said_already in (False, True):
        words = (*confirm, how) if said_already else confirm
        verdict = msgspec.structs.replace(diagnosis(state).verdict, confirm=words)
        plays(four, verdict=diagnosis(state, verdict=verdict))
        main(["attach"])
        output = capsys.readouterr().err
        assert ("on other hosts: not seen" in output) is (is_advised and not said_already)
        assert (f"grpo-doctor:   {how}" in output) is (is_advised and not said_already)


def test_progress_is_taken_back_on_a_terminal(
    plays: Callable[..., None], monkeypatch: pytest.MonkeyPatch
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
    plays: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the last one the cursor would go to the next line, which nothing takes back."""

    def examine_job(target: Job, wishes: object, progress: Callable[[str], None]) -> Evidence:
        progress("looking at ranks " * 20)
        return Evidence(target, 1)

    plays(job())
    monkeypatch.setattr("grpo_doctor.cli.visit.examine_job", examine_job)
    monkeypatch.setattr("grpo_doctor.cli.visit.color_wanted", lambda stream: True)
    monkeypatch.setenv("COLUMNS", "40")
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    main(["attach", "--json"])
    (line,) = [chunk for chunk in shown.getvalue().split("\r\x1b[K") if chunk]
    assert line == ("grpo-doctor: " + "looking at ranks " * 20)[:39]


def test_without_standard_error_the_verdict_is_said_all_the_same(
    plays: Callable[..., None], capsys: Said, monkeypatch: pytest.MonkeyPatch
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

    def find_jobs(pids: object) -> tuple[Job, ...]:
        codes.append(subprocess.run(["false"], check=False).returncode)
        raise discover.NoJobError("none")

    monkeypatch.setattr("grpo_doctor.cli.visit.discover.find_jobs", find_jobs)
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert main(["attach"]) == 5
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert codes == [1]


def test_json_alone_is_on_standard_output(plays: Callable[..., None], capsys: Said) -> None:
    plays(job())
    assert main(["attach", "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"]["class"] == "rank-stopped"


def test_names_that_are_no_unicode_do_not_break_the_json(
    plays: Callable[..., None], capsys: Said
) -> None:
    plays(job(), verdict=diagnosis(host="node\udcff"))
    assert main(["attach", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["job"]["host"] == "node?"
    assert main(["attach"]) == 3


def test_several_jobs_are_listed_with_the_command_for_each(
    plays: Callable[..., None], capsys: Said
) -> None:
    plays(job(), job(9_000, "python \x1b[31mother.py\nrm -rf /"))
    assert main(["attach"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert "2 jobs run here" in output.err
    assert "grpo-doctor attach 4700" in output.err
    assert "2 ranks (pid 9000, 9001)" in output.err
    assert "\x1b" not in output.err
    assert "\nrm" not in output.err


def test_processes_of_several_jobs_are_listed_as_well(
    plays: Callable[..., None], capsys: Said
) -> None:
    plays(job(), job(9_000))
    assert main(["attach", "4700", "9001"]) == 2
    assert "2 jobs belong to the processes given; say which one:" in capsys.readouterr().err


def test_ctrl_c_before_the_first_look(plays: Callable[..., None], capsys: Said) -> None:
    plays(error=KeyboardInterrupt())
    assert main(["attach"]) == 130
    assert capsys.readouterr().err == "grpo-doctor: interrupted; the job was not touched.\n"


def test_ctrl_c_after_the_looks(
    plays: Callable[..., None], capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread may have been borrowed by then."""

    def interrupted(evidence: Evidence) -> Diagnosis:
        raise KeyboardInterrupt

    plays(job())
    monkeypatch.setattr("grpo_doctor.hang.diagnose.diagnose_scene", interrupted)
    assert main(["attach"]) == 130
    output = capsys.readouterr().err
    assert output.endswith("the job was looked at and is as it was.\n")
    assert "not touched" not in output


def test_ctrl_c_after_something_was_agreed_to(
    plays: Callable[..., None], capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    def carry_out(undo: Undo, job: Job) -> bool:
        raise KeyboardInterrupt

    plays(job(), verdict=diagnosis(undo=(Undo("continue", 4_701, "", "Continue?"),)))
    monkeypatch.setattr("grpo_doctor.hang.confirm.carry_out", carry_out)
    assert main(["attach", "--confirm", "--yes"]) == 130
    assert "may have been done" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [(discover.NoJobError("There is none."), 5), (discover.NoPermissionError("Use sudo."), 4)],
)
def test_no_job_and_no_permission(
    plays: Callable[..., None], capsys: Said, error: Exception, code: int
) -> None:
    plays(error=error)
    assert main(["attach", "4711"]) == code
    assert capsys.readouterr().err == f"grpo-doctor: {error}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["0"], "not a PID"),
        (["1", "--dumps", "/tmp"], "give one"),
        (["--replay", "a", "--dumps", "b"], "give one"),
        (["--replay", "a", "4711"], "give one"),
        (["--replay", "a", "--confirm", "--yes"], "needs the job"),
        (["--yes"], "--confirm as well"),
        (["--confirm"], "no terminal"),
        (["--seconds", "0"], "seconds"),
        (["--replay", "/nowhere/at/all"], "/nowhere/at/all"),
        (["--dumps", "/nowhere/at/all"], "no such folder"),
        (["--out", "hang.zip"], "one file called .tar.gz"),
        (["--", "python"], "after `--`"),
    ],
)
def test_wrong_usage(capsys: Said, arguments: list[str], words: str) -> None:
    assert main(["attach", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_folder_without_dumps(capsys: Said, tmp_path: Path) -> None:
    assert main(["attach", "--dumps", str(tmp_path)]) == 5
    assert "no flight-recorder file" in capsys.readouterr().err


def test_large_dumps_are_said_to_take_a_while(
    capsys: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = (Call("all_reduce"),)
    for dump in dumps_of(simulated({WORLD: (0, 1)}, {0: calls, 1: calls}).run()):
        (tmp_path / Path(dump.source).name).write_bytes(dump.data)
    assert main(["attach", "--dumps", str(tmp_path)]) in (0, 3)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("grpo_doctor.cli.dumped._SAID_FROM_MB", 0.0)
    assert main(["attach", "--json", "--dumps", str(tmp_path)]) in (0, 3)
    output = capsys.readouterr()
    assert "reading 2 dumps, 0 MB: about 1 s ..." in output.err
    assert json.loads(output.out)["schema"] == 1


def test_a_folder_with_other_files(capsys: Said, tmp_path: Path) -> None:
    (tmp_path / "a_0").write_text('{"hello": 1}')
    (tmp_path / "b").write_text("hello")
    assert main(["attach", "--dumps", str(tmp_path)]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert f"{tmp_path / 'a_0'} is no flight-recorder dump: it has none of its fields" in output.err
    assert f"{tmp_path / 'b'} is no flight-recorder dump: neither JSON nor a pickle" in output.err


def test_a_bundle_is_no_folder_of_dumps(capsys: Said, tmp_path: Path) -> None:
    (tmp_path / "evidence.json.gz").write_bytes(gzip.compress(b"{}"))
    assert main(["attach", "--dumps", str(tmp_path)]) == 2
    assert "Give it to --replay" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["x"], ["--secnds", "3"], ["--out", ""], ["--html="], ["--replay", ""]]
)
def test_what_argparse_refuses(capsys: Said, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as process:
        main(["attach", *arguments])
    assert process.value.code == 2


def test_everything_that_was_asked_for_is_kept(
    plays: Callable[..., None], capsys: Said, tmp_path: Path
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


def test_a_result_that_cannot_be_written(plays: Callable[..., None], capsys: Said) -> None:
    plays(job())
    assert main(["attach", "--html", "/nowhere/at/all.html"]) == 4
    output = capsys.readouterr()
    assert output.out.startswith(SUMMARY)  # the verdict is not lost with the file
    assert "can't write /nowhere/at/all.html" in output.err


def carried_out(monkeypatch: pytest.MonkeyPatch, *, moved: bool) -> list[Undo]:
    """A list of what is undone from now on, instead of undoing it."""
    done: list[Undo] = []

    def carry_out(undo: Undo, job: Job) -> bool:
        done.append(undo)
        return moved

    monkeypatch.setattr("grpo_doctor.hang.confirm.carry_out", carry_out)
    return done


@pytest.mark.parametrize("moved", [True, False])
def test_undoing_goes_into_the_verdict(
    plays: Callable[..., None], capsys: Said, monkeypatch: pytest.MonkeyPatch, moved: bool
) -> None:
    undo = Undo("continue", 4_701, "", "Continue rank 1 (SIGCONT to process 4701)?")
    plays(job(), verdict=diagnosis(undo=(undo,)))
    done = carried_out(monkeypatch, moved=moved)
    assert main(["attach", "--json", "--confirm", "--yes"]) == 3
    assert done == [undo]
    verdict = json.loads(capsys.readouterr().out)["verdict"]
    assert ("confirmed: the job moved" in verdict["evidence"][0]["text"]) == moved
    assert (verdict["confidence"] >= 0.99) == moved


@pytest.mark.parametrize(("answer", "does"), [("y\n", 1), ("\n", 0), ("n\n", 0), ("", 0)])
def test_it_asks_first(
    plays: Callable[..., None], monkeypatch: pytest.MonkeyPatch, answer: str, does: int
) -> None:
    own_end, theirs = os.openpty()
    plays(job(), verdict=diagnosis(undo=(Undo("continue", 4_701, "", "Continue?"),)))
    done = carried_out(monkeypatch, moved=True)
    with open(theirs, encoding="utf-8") as terminal:  # noqa: PTH123 - a descriptor
        monkeypatch.setattr(sys, "stdin", terminal)
        os.write(own_end, answer.encode() or b"\x04")  # Ctrl-D
        assert main(["attach", "--confirm"]) == 3
    os.close(own_end)
    assert len(done) == does


@pytest.mark.parametrize("moved", [True, False])
def test_a_job_that_moves_again_need_not_be_kept(
    plays: Callable[..., None], capsys: Said, monkeypatch: pytest.MonkeyPatch, moved: bool
) -> None:
    plays(job(), verdict=diagnosis(undo=(Undo("continue", 4_701, "", "Continue?"),)))
    carried_out(monkeypatch, moved=moved)
    main(["attach", "--confirm", "--yes"])
    assert ("keep it before you end the job" in capsys.readouterr().err) != moved


def test_nothing_to_undo_is_said(plays: Callable[..., None], capsys: Said) -> None:
    plays(job())
    assert main(["attach", "--confirm", "--yes"]) == 3
    assert "nothing here that can be undone" in capsys.readouterr().err


def test_the_parser_needs_nothing_that_is_slow_to_import() -> None:
    code = (
        "import sys; from grpo_doctor.cli.parser import make_parser; make_parser();"
        "slow = {'numpy', 'rich', 'jinja2', 'psutil', 'plotly'} & set(sys.modules);"
        "sys.exit(repr(slow) if slow else 0)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
