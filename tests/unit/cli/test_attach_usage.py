"""`attach`: several jobs, none, no permission, files that are no dumps, and odd arguments."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from grpo_doctor.cli import attach_evidence, main
from grpo_doctor.cli.attach_evidence import _MOST_LISTED, several
from grpo_doctor_probes import discover
from grpo_doctor_probes.evidence import Job, Member
from tests.dumps.formats import dumps as dumps_of
from tests.dumps.simulator import WORLD, Call
from tests.dumps.simulator import job as simulated
from tests.unit.cli.attached import Captured, Plays, job


def test_several_jobs_are_listed_with_the_command_for_each(plays: Plays, capsys: Captured) -> None:
    plays(job(), job(9_000, "python \x1b[31mother.py\nrm -rf /"))
    assert main(["attach"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert "2 jobs run here" in output.err
    assert "grpo-doctor attach 4700" in output.err
    assert "2 ranks (pid 9000, 9001)" in output.err
    assert "\x1b" not in output.err
    assert "\nrm" not in output.err
    assert main(["attach", "4700", "9001"]) == 2
    assert "2 jobs belong to the given processes; choose one:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [(discover.NoJobError("There is none."), 5), (discover.NoPermissionError("Use sudo."), 4)],
)
def test_no_job_and_no_permission(
    plays: Plays, capsys: Captured, error: Exception, code: int
) -> None:
    plays(error=error)
    assert main(["attach", "4711"]) == code
    assert capsys.readouterr().err == f"grpo-doctor: {error}\n"


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


def test_a_folder_without_dumps(capsys: Captured, tmp_path: Path) -> None:
    assert main(["attach", "--dumps", str(tmp_path)]) == 5
    assert "no flight-recorder file" in capsys.readouterr().err
    (tmp_path / "evidence.json.gz").write_bytes(gzip.compress(b"{}"))
    assert main(["attach", "--dumps", str(tmp_path)]) == 2
    assert "Give it to --replay" in capsys.readouterr().err


def test_large_dumps_are_said_to_take_a_while(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = (Call("all_reduce"),)
    for dump in dumps_of(simulated({WORLD: (0, 1)}, {0: calls, 1: calls}).run()):
        (tmp_path / Path(dump.source).name).write_bytes(dump.data)
    assert main(["attach", "--dumps", str(tmp_path)]) in (0, 3)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("grpo_doctor.cli.attach_evidence._SAID_FROM_MB", 0.0)
    assert main(["attach", "--json", "--dumps", str(tmp_path)]) in (0, 3)
    output = capsys.readouterr()
    assert "reading 2 dumps, 0 MB: about 1 s ..." in output.err
    assert json.loads(output.out)["schema"] == 1


def test_a_folder_with_other_files(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "a_0").write_text('{"hello": 1}')
    (tmp_path / "b").write_text("hello")
    assert main(["attach", "--dumps", str(tmp_path)]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert (
        f"{tmp_path / 'a_0'} is not a flight-recorder dump: it has none of its fields" in output.err
    )
    assert (
        f"{tmp_path / 'b'} is not a flight-recorder dump: neither JSON nor a pickle" in output.err
    )


def job_of(*ranks: int | None, pid: int = 100) -> Job:
    words = ("python", "python train.py")
    members = tuple(
        Member(pid + i, 1, 100, "server" if rank is None else "rank", *words, rank=rank)
        for i, rank in enumerate(ranks)
    )
    return Job("node", members, len(ranks))


def test_a_line_has_the_command_that_attaches_to_it() -> None:
    (head, line) = several([job_of(0, 1)]).splitlines()
    assert head == "1 jobs run here; choose one:"
    assert "grpo-doctor attach 100 " in line
    assert "2 ranks (pid 100, 101), since " in line
    assert line.endswith("python train.py")


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ((0, 1, 2, 3), "(pid 100, 101, 102, 103),"),
        ((0, 1, 2, 3, 4), "5 ranks (pid 100, 101, 102, 103, ...),"),
        ((None, 0), "attach 101 "),  # ranks come before other processes
        ((None, 0), "1 rank (pid 101)"),
        ((None,), "attach 100 "),
        ((None,), "0 ranks (pid 100)"),
    ],
)
def test_ranks_are_counted_and_four_named(ranks: tuple[int | None, ...], words: str) -> None:
    assert words in several([job_of(*ranks)])


def test_many_jobs_are_counted() -> None:
    all_listed = several([job_of(0, pid=100 + n) for n in range(_MOST_LISTED)])
    assert "more" not in all_listed
    text = several([job_of(0, pid=100 + n) for n in range(_MOST_LISTED + 3)], named=True)
    assert text.splitlines()[0].endswith("jobs belong to the given processes; choose one:")
    assert text.endswith("  and 3 more")


@pytest.mark.parametrize(
    ("age_s", "words"), [(0, "0 s"), (30, "30 s"), (3600, "60 min 00 s"), (-5, "0 s")]
)
def test_for_how_long_a_job_has_run(
    monkeypatch: pytest.MonkeyPatch, age_s: int, words: str
) -> None:
    monkeypatch.setattr(time, "clock_gettime", lambda _: 7200.0)
    ticks = (7200 - age_s) * os.sysconf("SC_CLK_TCK")
    member = Member(100, 1, ticks, "rank", "python", "python t.py", rank=0)
    assert f", since {words}: " in several([Job("node", (member,), 1)])


@pytest.mark.parametrize(
    ("megabytes", "lines"),
    [
        (49.999, []),
        (50.0, ["reading 1 dumps, 50 MB: about 7 s ..."]),
        (56.0, ["reading 1 dumps, 56 MB: about 7 s ..."]),
    ],
)
def test_a_wait_of_seconds_is_told(
    megabytes: float, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    monkeypatch.setattr(attach_evidence, "inform", messages.append)
    data = range(round(megabytes * 1e6))
    attach_evidence._tell_of_a_wait(cast(Any, SimpleNamespace(dumps=(SimpleNamespace(data=data),))))
    assert messages == lines


@pytest.mark.parametrize(("count", "last"), [(40, "  39 is empty"), (41, "  and 1 more")])
def test_forty_files_that_are_no_dumps_are_named(count: int, last: str) -> None:
    problems = cast(
        Any, tuple(SimpleNamespace(source=f"file:{n}", what="is empty") for n in range(count))
    )
    lines = attach_evidence._nothing_usable(Path("x"), problems).splitlines()
    assert lines[0] == "--dumps x: no file there is a usable flight-recorder dump."
    assert lines[1] == "  0 is empty"
    assert lines[-1] == last
    assert len(lines) == 1 + min(count, 41)
