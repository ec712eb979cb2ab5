"""More dump files than are read: the rest is not left out without a word."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_doctor_probes.flight import files


def test_as_many_as_are_read_are_not_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_FILES", 3)
    for rank in range(3):
        (tmp_path / f"trace_rank_{rank}").write_bytes(b'{"entries": []}')
    assert [(dump.rank, dump.problem) for dump in files.dump_files([tmp_path])] == [
        (0, ""), (1, ""), (2, ""),
    ]  # fmt: skip


def test_how_many_were_not_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_FILES", 3)
    for rank in range(5):
        (tmp_path / f"trace_rank_{rank}").write_bytes(b'{"entries": []}')
    dumps = files.dump_files([tmp_path])
    assert [dump.problem for dump in dumps[:3]] == ["", "", ""]
    (excess,) = dumps[3:]
    assert "2 more files were not read" in excess.problem
    assert excess.source.endswith("trace_rank_3")
