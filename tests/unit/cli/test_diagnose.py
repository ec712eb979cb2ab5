"""`grpo-doctor diagnose` on files and standard input."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from grpo_doctor.cli import diagnose, main
from tests.unit.cli.attached import Captured

ERROR = (
    "ValueError: No available memory for the cache blocks. token=hf_abcdefghijklmnopqrstuvwxyz\n"
)


def test_a_cause_with_its_line_and_fix(tmp_path: Path, capsys: Captured) -> None:
    log = tmp_path / "train.log"
    log.write_bytes(b"\xff\x1b[31mfirst\n" + ERROR.encode())
    assert main(["diagnose", str(log)]) == 0
    out = capsys.readouterr().out
    assert "has no room for a KV cache. (proven, line 2)" in out
    assert "  fix   raise gpu_memory_utilization" in out
    assert "hf_abc" not in out
    assert main(["diagnose", str(log), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cause"]["name"] == "no-room-for-kv-cache"


def test_an_unknown_cause_is_said(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        "sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"{'loss': 0.1, 'room': 1}"))
    )
    assert main(["diagnose", "-"]) == 10
    out = capsys.readouterr().out
    assert "The cause is unknown" in out
    assert "no line has a word such as error, failed, killed or timed out" in out
    assert "more rows, in a file: grpo-doctor report LOG judges" in out
    both = [tmp_path / "a", tmp_path / "b"]
    for path in both:
        path.write_text("hello")
    both[1].write_text(ERROR)
    assert main(["diagnose", *map(str, both)]) == 0
    assert f"(proven, {both[1]}:1)" in capsys.readouterr().out


def test_the_logs_of_a_folder_are_read(tmp_path: Path, capsys: Captured) -> None:
    files = tmp_path / "wandb" / "run-1" / "files"
    files.mkdir(parents=True)
    (files / "config.yaml").write_text(ERROR)
    assert main(["diagnose", str(tmp_path)]) == 2
    assert "none of its files ends in" in capsys.readouterr().err
    (files / "output.log").write_text(f"first\n{ERROR}")
    (tmp_path / "other.err").write_text("second\nthird")
    assert main(["diagnose", str(tmp_path), "--json"]) == 0
    cause = json.loads(capsys.readouterr().out)["cause"]
    assert (cause["file"], cause["line"]) == (str(files / "output.log"), 2)


def test_a_folder_of_too_many_logs_is_refused(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnose, "_MOST_LOGS", 1)
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text(ERROR)
    assert main(["diagnose", str(tmp_path)]) == 2
    assert "has 2 logs; at most 1 are read" in capsys.readouterr().err


def test_of_a_long_log_begin_and_end_are_read(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnose, "_HEAD_BYTES", 1000)
    monkeypatch.setattr(diagnose, "_TAIL_BYTES", 1000)
    log = tmp_path / "log"
    log.write_text("x\n" * 2_000_000 + ERROR)
    assert main(["diagnose", str(log)]) == 0
    said = capsys.readouterr()
    assert "4 MB between its begin and its end are not read" in said.err
    assert "(proven, line 2000001)" in said.out
