"""Which module reads a file or a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_doctor.errors import TraceError
from grpo_doctor.importers.load import load
from grpo_doctor.trace.write import write_trace
from tests.build import TraceBuilder
from tests.recording import write_recording
from tests.unit.importers.kineto_files import rank_events, text_of, write


def test_a_folder_of_ours_is_ours_whatever_else_lies_in_it(tmp_path: Path) -> None:
    write(tmp_path / "rank0.json", text_of(rank_events()))
    assert load(tmp_path).run.origin is not None
    write_recording(tmp_path, 0, [("step", 2 * 10**9, 3 * 10**9)])
    assert load(tmp_path).run.origin is None


def test_a_folder_in_which_only_our_trace_was_kept_is_ours(tmp_path: Path) -> None:
    write(tmp_path / "rank0.json", text_of(rank_events()))
    write_trace(TraceBuilder().step(0, 1, 0.0, {"train": 1.0}).build(), tmp_path / "trace.json")
    assert load(tmp_path).run.id == "built"


def test_a_file_of_ours_is_ours(tmp_path: Path) -> None:
    path = tmp_path / "any name.json"
    write_trace(TraceBuilder().step(0, 1, 0.0, {"train": 1.0}).build(), path)
    assert load(path).run.id == "built"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("hello\n", "x.log is not a trace and has no step with a reward; .*report --help"),
        ('{"a": 1}', "report --help` lists the files"),
        ("", "report --help` lists the files"),
    ],
)
def test_what_nobody_reads_is_told_with_what_is_read(
    content: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.log"
    path.write_text(content)
    with pytest.raises(TraceError, match=words):
        load(path)


def test_nothing_there_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="gone"):
        load(tmp_path / "gone")
    with pytest.raises(TraceError):
        load(tmp_path)
