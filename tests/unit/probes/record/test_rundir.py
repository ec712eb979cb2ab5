"""Folders that we make are the user's alone, and those of others are not used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from grpo_doctor_probes.record.rundir import make_private


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_missing_parents_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_private(str(tmp_path / "a" / "b"))
    finally:
        os.umask(before)
    assert [mode(tmp_path / "a"), mode(tmp_path / "a" / "b")] == [0o700, 0o700]


@pytest.mark.parametrize(("bits", "taken"), [(0o755, True), (0o1777, True), (0o777, False)])
def test_a_folder_that_everybody_may_write_to_is_refused(
    tmp_path: Path, bits: int, taken: bool
) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    folder.chmod(bits)
    if taken:
        make_private(str(folder))
    else:
        with pytest.raises(PermissionError, match="every user may write to it"):
            make_private(str(folder))
    assert folder.stat().st_mode & 0o7777 == bits


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    os.chown(folder, 12345, 12345)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(PermissionError, match="belongs to another user"):
        make_private(str(folder))
