"""A written file is whole or not there, and what it replaces keeps its nature."""

from __future__ import annotations

import os
import secrets
import threading
from pathlib import Path

import pytest

from grpo_doctor.errors import OutputError
from grpo_doctor.files import replacing


def test_a_failed_block_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail_half_way() -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_symbolic_link_keeps_pointing(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    with replacing(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert target.read_text() == "new"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives links away")
@pytest.mark.parametrize(("owner", "us", "taken"), [(1000, 0, False), (0, 1000, True)])
def test_a_link_of_another_user_is_refused_unless_it_is_roots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, us: int, taken: bool
) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    os.lchown(link, owner, owner)
    monkeypatch.setattr(os, "geteuid", lambda: us)
    if taken:
        with replacing(link) as file:
            file.write(b"new")
    else:
        with pytest.raises(OutputError, match="a link of another user"), replacing(link):
            pass
    assert target.read_text() == ("new" if taken else "old")


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    with replacing(pipe) as file:
        file.write(b"through")
    reader.join()
    assert read == [b"through"]
    assert pipe.is_fifo()


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="can't write"), replacing(tmp_path) as file:
        file.write(b"x")


def test_a_link_planted_under_the_temporary_name_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda size: "known")
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / ".report.known.tmp").symlink_to(victim)

    with pytest.raises(OutputError), replacing(tmp_path / "report") as file:
        file.write(b"yours")
    assert victim.read_text() == "mine"


def test_no_two_temporary_names_are_alike(tmp_path: Path) -> None:
    names = set()
    for _ in range(20):
        with replacing(tmp_path / "report"):
            names |= {path.name for path in tmp_path.glob(".report.*")}
    assert len(names) == 20
