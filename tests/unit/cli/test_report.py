"""`report`: what it writes, in which form, and where."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from grpo_doctor.cli import main
from grpo_doctor.cli.report import _beside
from grpo_doctor.trace.write import write_trace
from tests.recording import write_recording
from tests.unit.cli.attached import Captured
from tests.unit.findings.example_runs import run
from tests.unit.importers import test_trackers


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "one.json"
    write_trace(run().build(), path)
    return path


def test_a_page_lies_beside_the_recording_unless_told_otherwise(
    trace: Path, capsys: Captured
) -> None:
    assert main(["report", str(trace)]) == 0
    page = trace.with_name("one.report.html")
    assert page.read_bytes().startswith(b"<!doctype html>")
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2, said
    assert "9.95 s per step." in said[0]
    assert said[1].endswith(f"wrote {page}")
    second = trace.with_name("other.html")
    assert main(["report", str(trace), "-o", str(second), "--quiet"]) == 0
    assert second.read_bytes() == page.read_bytes()
    assert capsys.readouterr().err == ""


def test_nothing_but_the_page_is_left_in_a_folder_of_others(tmp_path: Path) -> None:
    (tmp_path / "run-abc.wandb").write_bytes(gzip.decompress(test_trackers.REAL.read_bytes()))
    assert main(["report", str(tmp_path), "--quiet"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"run-abc.wandb", "report.html"}


def test_without_a_recording_the_newest_run_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, ended_s in (("b", 200), ("a", 300), ("c", 100)):
        folder = Path("grpo-doctor-out", name)
        folder.mkdir(parents=True)
        write_trace(run().build(), folder / "trace.json")
        (folder / "run.json").write_text("{}")
        os.utime(folder / "run.json", (ended_s, ended_s))
    assert main(["report", "--json"]) == 0
    assert "the newest run: grpo-doctor-out/a" in capfd.readouterr().err


def test_names_of_pages(tmp_path: Path) -> None:
    names = {
        "trace.json": "report.html",
        "trace.json.gz": "report.html",
        "mine.json.gz": "mine.report.html",
    }
    for recording, page in names.items():
        assert _beside(tmp_path / recording) == str(tmp_path / page)
    assert _beside(tmp_path) == str(tmp_path / "report.html")


def test_text_and_json_go_to_standard_output_without_a_remark(trace: Path, capfd: Captured) -> None:
    assert main(["report", str(trace), "--format", "text"]) == 0
    printed = capfd.readouterr()
    assert "s per step" in printed.out
    assert "\x1b" not in printed.out
    assert "wrote" not in printed.err
    for form in (["--json"], ["--format", "json"], ["--json", "--format", "json"]):
        assert main(["report", str(trace), *form]) == 0
        assert json.loads(capfd.readouterr().out)["summary"]["steps"] == 6


def test_text_into_a_file_is_never_coloured(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_doctor.cli.rendering.color_wanted", lambda stream: stream is not None)
    path = trace.with_name("digest.txt")
    assert main(["report", str(trace), "--format", "text", "-o", str(path)]) == 0
    assert b"\x1b" not in path.read_bytes()


def test_a_run_that_was_killed_gets_its_trace_and_one_that_has_it_keeps_it(
    tmp_path: Path, trace: Path
) -> None:
    spans = [("train", 2_000_000_000, 3_000_000_000), ("step", 1_500_000_000, 3_500_000_000)]
    write_recording(tmp_path / "killed", 0, spans, closed_ns=4_000_000_000, facts={})
    written = tmp_path / "killed" / "trace.json"
    assert main(["report", str(tmp_path / "killed"), "--json", "-o", str(tmp_path / "a.json")]) == 0
    assert written.exists()
    written.write_bytes(trace.read_bytes())
    assert main(["report", str(tmp_path / "killed"), "--json", "-o", str(tmp_path / "b.json")]) == 0
    assert written.read_bytes() == trace.read_bytes()
    assert main(["report", str(trace), "--json", "-o", str(tmp_path / "c.json")]) == 0
    assert not trace.with_name("trace.json").exists()
