from __future__ import annotations

import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from grpo_doctor_probes.samplers.file import SampleFile, sample_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return sample_path(tmp_path, "node-1.example")


def test_the_path_holds_the_host_and_nothing_that_leaves_the_folder(tmp_path: Path) -> None:
    assert sample_path(tmp_path, "n1").relative_to(tmp_path).as_posix() == "hosts/n1.samples.jsonl"
    assert sample_path(tmp_path, "../a b").parent == tmp_path / "hosts"


def test_lines_are_appended_and_private(path: Path) -> None:
    for line in (b"1\n", b"2\n"):
        file = SampleFile(path)
        file.open()
        file.write(line)
        file.close()
    assert path.read_bytes() == b"1\n2\n"
    assert file.size_bytes == 4
    assert path.stat().st_mode & 0o777 == 0o600
    assert file.problem is None


def test_a_full_disk_ends_the_writing_without_an_exception(path: Path) -> None:
    path.parent.mkdir()
    path.symlink_to("/dev/full")
    file = SampleFile(path)
    file.open()
    file.write(b"1\n")
    assert file.problem is not None
    assert "No space left on device" in file.problem
    assert str(path) in file.problem
    file.write(b"2\n")
    file.close()


def test_a_folder_that_cannot_be_made_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("a file is in the way")
    file = SampleFile(sample_path(tmp_path, "a"))
    file.open()
    assert file.problem is not None
    file.write(b"1\n")
    file.close()


@contextmanager
def file_size_limit(limit_bytes: int) -> Iterator[None]:
    # Only around the writes: pytest's own output may go to a file, and has the same limit.
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_half_a_line_is_taken_back(path: Path) -> None:
    file = SampleFile(path)
    file.open()
    with file_size_limit(10):
        file.write(b"1234567\n")
        file.write(b"does not fit\n")
    assert file.problem is not None
    assert path.read_bytes() == b"1234567\n"
