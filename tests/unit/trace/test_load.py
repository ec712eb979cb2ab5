"""What is opened at a path: a run directory, a trace, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_doctor.errors import TraceError
from grpo_doctor.trace.read import load
from grpo_doctor.trace.write import write_trace
from tests.build import TraceBuilder


def keep(path: Path) -> None:
    write_trace(TraceBuilder().step(0, 0, 0.0, {"train": 1.0}).build(), path)


def test_nothing_there_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="does not exist"):
        load(tmp_path / "nowhere")


def test_a_name_that_no_file_can_have_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"can't read .*: File name too long"):
        load(tmp_path / ("x" * 5000))


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_folder_from_which_only_the_trace_was_kept(tmp_path: Path, name: str) -> None:
    keep(tmp_path / name)
    assert len(load(tmp_path).spans) == 2
    assert len(load(tmp_path / name).spans) == 2


def test_an_empty_folder_is_no_recording(tmp_path: Path) -> None:
    with pytest.raises(TraceError):
        load(tmp_path)
