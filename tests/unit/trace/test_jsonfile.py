"""Reading lines of a file that somebody else appends to."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from grpo_doctor.trace.jsonfile import MAX_TIME_NS, MAX_WHOLE, moment, read_lines, whole


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def test_a_line_that_is_being_written_is_read_when_it_is_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(b'{"step": 1}\n{"st')

    def write_the_rest(_: float) -> None:
        with path.open("ab") as file:
            file.write(b'ep": 2}\n')

    monkeypatch.setattr(time, "sleep", write_the_rest)
    assert read_lines(path) == ([{"step": 1}, {"step": 2}], None)


def test_a_line_that_stays_cut_off_is_damaged(path: Path) -> None:
    path.write_bytes(b'{"step": 1}\n{"st')
    assert read_lines(path) == ([{"step": 1}], "metrics.jsonl: 1 damaged lines left out")


def test_a_whole_last_line_needs_no_newline_and_nobody_waits(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(time, "sleep")
    path.write_bytes(b'x\n{"step": 1}\n\n  \n{"step": 2}')
    assert read_lines(path) == (
        [{"step": 1}, {"step": 2}],
        "metrics.jsonl: 1 damaged lines left out",
    )
    for text in (b'{"step": 1}\n{"step": 2}', b'{"step": 1}\n{"step": 2}\n'):
        path.write_bytes(text)
        assert read_lines(path) == ([{"step": 1}, {"step": 2}], None)
    path.write_bytes(b"")
    assert read_lines(path) == ([], None)


def test_no_file_is_no_problem_and_one_that_cannot_be_read_is(path: Path) -> None:
    assert read_lines(path) == ([], None)
    assert read_lines(path.parent) == ([], f"{path.parent.name} can't be read: Is a directory")


@pytest.mark.parametrize("sign", [1, -1])
def test_whole_numbers_have_room_for_sums(sign: int) -> None:
    assert whole(sign * MAX_WHOLE) == sign * MAX_WHOLE
    assert whole(sign * (MAX_WHOLE + 1)) is None
    assert whole(True) is None


def test_moments_are_times_since_boot() -> None:
    assert (moment(0), moment(MAX_TIME_NS)) == (0, MAX_TIME_NS)
    assert (moment(-1), moment(MAX_TIME_NS + 1), moment(1.0)) == (None, None, None)
