"""Console logs as lines, and the beginnings of files."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from grpo_doctor.errors import TraceError
from grpo_doctor.importers import text
from grpo_doctor.importers.text import command_of, contains, is_log, lines, read_all, read_head


@pytest.mark.parametrize(
    ("head", "log"),
    [
        (b"hello", True), (b"[INFO] hello", True), (b"[2026-03-25 11:39:14] hello", True),
        (b"", False), (b" \n", False), (b"a\0b", False), (b'{"a": 1}', False), (b"[{", False),
        (b"\xef\xbb\xbfhello", False), (b"{'loss': 1}", True),
    ],
)  # fmt: skip
def test_a_log_is_lines_of_text(head: bytes, log: bool) -> None:
    assert is_log(head) is log


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("+ python -m verl.x a=1", ("python", "-m", "verl.x", "a=1")),
        ("run sh: `python -m verl.x 'a b'`", ("run", "sh:", "python", "-m", "verl.x", "a b")),
        ("python -m other", ()),
        ("python -m verl.x 'a", ()),
    ],
)
def test_a_command_is_divided_as_a_shell_does(line: str, words: tuple[str, ...]) -> None:
    assert command_of(line, "-m verl.") == words


@pytest.mark.parametrize(
    ("line", "prefix", "rest"),
    [
        ("(TaskRunner pid=1) hello", "(TaskRunner pid=1)", "hello"),
        ("(TaskRunner pid=1, ip=10.0.0.1)  x", "(TaskRunner pid=1, ip=10.0.0.1)", " x"),
        ("(not one) hello", "", "(not one) hello"),
    ],
)
def test_rays_prefix_is_taken_off(line: str, prefix: str, rest: str) -> None:
    assert text.without_actor(line) == (prefix, rest)


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "line", ["(a" + "pid=1" * 400_000, " " * 2_000_000, "(a pid=" + "1" * 2_000_000]
)
def test_a_long_line_that_begins_as_an_actor_takes_no_long_time(line: str) -> None:
    assert text.without_actor(line) == ("", line)


@pytest.mark.parametrize("packed", [False, True])
def test_lines_have_their_number_and_their_end(packed: bool, tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    content = b"a\n\x1b[36mb\x1b[0m\r\n\xffc"
    path.write_bytes(gzip.compress(content) if packed else content)
    assert list(lines(path)) == [(1, "a", True), (2, "b", True), (3, "\ufffdc", False)]
    assert read_head(path) == read_all(path) == content


def test_compressed_data_that_is_cut_off_ends_with_a_line_without_end(tmp_path: Path) -> None:
    path = tmp_path / "x.log.gz"
    path.write_bytes(gzip.compress(b"a\nb\n" * 1000)[:-12])
    *_, last = lines(path)
    count = sum(ended for *_, ended in lines(path))
    assert last == (count + 1, "", False)
    assert read_all(path).startswith(b"a\nb\n")


def test_a_file_without_line_ends_is_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "_LONGEST_LINE_BYTES", 8)
    path = tmp_path / "x.log"
    path.write_text("a\n1234567\n")
    with pytest.raises(TraceError, match="line 2 has over"):
        list(lines(path))
    path.write_text("a\n123456\n")
    assert len(list(lines(path))) == 2


@pytest.mark.parametrize(("limit", "refused"), [(9, True), (10, False)])
def test_a_file_that_is_read_at_once_has_a_limit(
    limit: int, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "_LARGEST_BYTES", limit)
    path = tmp_path / "x.json"
    path.write_text("0123456789")
    if refused:
        with pytest.raises(TraceError, match="has over 1 GiB"):
            read_all(path)
    else:
        assert read_all(path) == b"0123456789"


@pytest.mark.parametrize("at", [0, 3, 4, 5, 7, 8, 13])
def test_a_pattern_is_found_also_where_blocks_meet(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "_BLOCK_BYTES", 8)
    path = tmp_path / "x.log"
    path.write_bytes(b"." * at + b"step" + b"." * 20)
    assert contains(path, re.compile(b"step"))
    assert not contains(path, re.compile(b"stop"))
    assert not contains(tmp_path / "gone", re.compile(b"step"))


def test_what_can_not_be_read_says_why(tmp_path: Path) -> None:
    missing = tmp_path / "gone"
    for read in (read_all, lambda path: list(lines(path))):
        with pytest.raises(TraceError) as problem:
            read(missing)
        assert str(problem.value) == f"can't read {missing}: No such file or directory."
    with pytest.raises(TraceError, match=r"can't read .*gone.*No such file"):
        read_head(missing)


def test_an_error_that_the_job_went_on_after_does_not_end_it() -> None:
    fatal = text.FatalLines()
    for number, line in enumerate(("a", "a", "b")):
        fatal.step()
        fatal.read(number, "Traceback (most recent call last):")
        fatal.read(number, f"(W pid=1) ValueError: {line} [repeated 9x across cluster]")
        assert fatal.text == ("" if number == 1 else f"ValueError: {line}")
