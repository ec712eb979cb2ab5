"""`grpo-doctor report` on good, damaged and hostile recordings, as a user runs it."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_doctor.cli import main
from grpo_doctor.trace.write import write_trace
from tests.build import TraceBuilder

pytestmark = pytest.mark.slow
PHASES = {"dataload": 0.1, "rollout": 0.5, "reward": 0.1, "train": 0.3}


Done = subprocess.CompletedProcess[str]
Report = Callable[..., Done]


def report_in_a_process(*arguments: str) -> Done:
    return subprocess.run(
        [sys.executable, "-m", "grpo_doctor", "report", *arguments],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "COLUMNS": "100"},
    )  # fmt: skip


@pytest.fixture
def report(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Report:
    """The command in this process: starting another is most of what a report takes."""
    monkeypatch.setenv("COLUMNS", "100")

    def report(*arguments: str) -> Done:
        capfd.readouterr()
        code = main(["report", *arguments])
        return Done(arguments, code, *capfd.readouterr())

    return report


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A healthy run of two ranks and six steps."""
    build = TraceBuilder(ranks=2)
    for number in range(6):
        for rank in range(2):
            build.step(rank, number, start_s=float(number), phases=PHASES)
    path = tmp_path / "trace.json"
    write_trace(build.build(), path)
    return path


def test_the_three_forms(trace: Path) -> None:
    page = report_in_a_process(str(trace))
    assert page.returncode == 0, page.stderr
    assert trace.with_name("report.html").read_text().startswith("<!doctype html>")
    digest = report_in_a_process(str(trace), "--format", "text")
    assert "rollout" in digest.stdout
    assert "50%" in digest.stdout
    document = json.loads(report_in_a_process(str(trace), "--json").stdout)
    assert document["schema"] == 1
    assert document["summary"]["steps"] == 6
    assert document["summary"]["phases"]["rollout"]["share"] == pytest.approx(0.5)


def test_the_file_alone_gives_the_same_report_elsewhere(
    report: Report, trace: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    copy = elsewhere / "other.json.gz"
    copy.write_bytes(gzip.compress(trace.read_bytes()))
    ours = json.loads(report(str(trace), "--json").stdout)
    theirs = json.loads(report(str(copy), "--json").stdout)
    for document in (ours, theirs):
        document["run"].pop("source")
    assert ours == theirs
    assert report(str(copy)).returncode == 0
    assert (elsewhere / "other.report.html").exists()


def test_a_cut_off_trace_says_so_and_its_spans_are_used(report: Report, trace: Path) -> None:
    data = trace.read_bytes()
    trace.write_bytes(data[: len(data) * 2 // 3])
    done = report(str(trace), "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["run"]["loss"]["truncated"]
    assert document["summary"]["steps"] == 6  # the spans are there as columns, before the events


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"\x00\xff\xfe garbage", "not a trace"),
        (b"[]", "not a trace"),
        (b'{"traceEvents":[]}', "none of the PyTorch profiler"),
        (b'{"schemaVersion":1,"deviceProperties":[],"traceEvents":[]}', "PyTorch profiler"),
        (b'{"grpoDoctor":{"format":99},"traceEvents":[]}', "Upgrade"),
        (b"\x1f\x8b\x08\x00broken", "cut off|can't read|is empty|is damaged"),
    ],
)
def test_what_is_no_trace_is_refused_by_name(
    report: Report, tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "strange.json"
    path.write_bytes(content)
    done = report(str(path))
    assert done.returncode == 3, done.stdout + done.stderr
    assert "strange.json" in done.stderr
    assert any(part in done.stderr for part in reason.split("|")), done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "report.html").exists()


def test_nothing_there(report: Report, tmp_path: Path) -> None:
    done = report(str(tmp_path / "no.json"))
    assert done.returncode == 3
    assert "does not exist" in done.stderr
    done = report(str(tmp_path))
    assert done.returncode == 3
    assert "not a run directory" in done.stderr


def test_nan_in_an_event_costs_nothing(report: Report, trace: Path) -> None:
    text = trace.read_text()
    assert '"dur":500000.000' in text
    trace.write_text(text.replace('"dur":500000.000', '"dur":NaN', 1))
    done = report(str(trace), "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout, parse_constant=pytest.fail)
    notes = document["run"]["loss"]["notes"]
    assert notes == []  # the spans are read from their columns, not from events


def test_hostile_names_do_nothing(report: Report, tmp_path: Path) -> None:
    hostile = "</script><img src=x onerror=alert(1)>\u202e\x1b[31m{{7*7}}%{x}"
    build = TraceBuilder(ranks=1, framework=hostile, config={hostile: hostile})
    for number in range(4):
        build.step(0, number, float(number), {"rollout": 0.5, hostile: 0.3})
    build.open(0, f"rollout/{hostile}", 4.0, 5.0)
    path = tmp_path / "trace.json"
    write_trace(build.build(), path)
    done = report(str(path))
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report.html").read_text()
    assert "<img src=x" not in page
    digest = report(str(path), "--format", "text")
    assert "\x1b[31m" not in digest.stdout
    assert "\u202e" not in digest.stdout


def test_a_folder_that_cannot_be_written_to(report: Report, trace: Path, tmp_path: Path) -> None:
    blocker = tmp_path / "blocker"
    blocker.write_text("")
    done = report(str(trace), "-o", str(blocker / "report.html"))
    assert done.returncode == 4
    assert "can't write" in done.stderr
    assert "Choose another place" in done.stderr
    assert report(str(trace), "-o", "-").stdout.startswith("<!doctype html>")
