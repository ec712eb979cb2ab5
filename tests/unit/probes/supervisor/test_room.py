"""Where evidence goes when a disk is full."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from grpo_doctor_probes.supervisor import inquiry
from grpo_doctor_probes.supervisor.inquiry import made_with_room


def only_in(place: Path | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room below that place alone."""

    def has_room(folder: Path, _ranks: int) -> bool:
        return place is not None and folder.is_relative_to(place)

    monkeypatch.setattr(inquiry, "_has_room", has_room)


def test_with_room_it_is_where_it_was_wanted_and_the_users_alone(tmp_path: Path) -> None:
    wanted = tmp_path / "hangs" / "0"
    assert made_with_room(wanted, 8) == wanted
    assert wanted.stat().st_mode & 0o077 == 0
    assert made_with_room(wanted, 8) == wanted


def test_a_full_disk_is_left_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    only_in(tmp_path / "temporary", monkeypatch)
    made = made_with_room(tmp_path / "hangs" / "0", 8)
    assert made is not None
    assert made.parent == tmp_path / "temporary"
    assert made.stat().st_mode & 0o077 == 0
    assert not (tmp_path / "hangs" / "0").exists()


def test_what_is_in_the_way_is_left_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "hangs").write_text("a file")
    made = made_with_room(tmp_path / "hangs" / "0", 1)
    assert made is not None
    assert made.parent == tmp_path


def test_where_all_disks_are_full_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_in(None, monkeypatch)
    assert made_with_room(tmp_path / "0", 8) is None


def test_room_is_what_a_bundle_of_all_ranks_may_take(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    assert inquiry._has_room(tmp_path, 1)
    assert not inquiry._has_room(tmp_path, free // inquiry._PER_RANK_BYTES * 2)
