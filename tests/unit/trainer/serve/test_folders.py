"""The folders for weights: private, checked, and gone afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_doctor_trainer.serve.folders import (
    checked_files,
    make_folders,
    remove_folders,
    shared,
)
from grpo_doctor_trainer.serve.protocol import ProtocolError
from grpo_doctor_trainer.serve.state import Folder


def test_a_folder_is_private_shared_by_its_token_and_removed(tmp_path: Path) -> None:
    unusable = tmp_path / "file"
    unusable.write_text("")
    (folder,) = make_folders([unusable, tmp_path / "new"])
    path = Path(folder.path)
    assert path.parent == tmp_path / "new"
    assert path.stat().st_mode & 0o777 == 0o700
    assert shared(folder)
    assert not shared(Folder(folder.path, "another"))
    assert not shared(Folder(str(tmp_path / "nowhere"), folder.token))
    remove_folders([folder])
    assert not path.exists()


def test_what_a_killed_server_left_is_removed_by_the_next(tmp_path: Path) -> None:
    stale = tmp_path / f"grpo-doctor-weights-{2**22 + 5}-{'0' * 16}"  # no process has this number
    running = tmp_path / f"grpo-doctor-weights-1-{'0' * 16}"
    unrelated = tmp_path / "grpo-doctor-weights-notes"
    for path in (stale, running, unrelated):
        path.mkdir()
        (path / "part-0.safetensors").write_text("")
    make_folders([tmp_path])
    assert not stale.exists()
    assert running.exists()
    assert unrelated.exists()


def test_only_files_right_inside_the_folders_are_read(tmp_path: Path) -> None:
    (folder,) = make_folders([tmp_path])
    inside = Path(folder.path)
    good = inside / "part-0.safetensors"
    good.write_text("")
    (inside / "deeper").mkdir()
    (inside / "deeper" / "part-0.safetensors").write_text("")
    (tmp_path / "outside.safetensors").write_text("")
    (inside / "link.safetensors").symlink_to(tmp_path / "outside.safetensors")
    assert checked_files([str(good)], [folder]) == [good]
    for bad in (
        "/etc/passwd",
        "part-0.safetensors",
        str(inside / "token"),
        str(inside / "link.safetensors"),
        str(inside / "absent.safetensors"),
        str(inside / "deeper" / "part-0.safetensors"),
        str(inside / ".." / "outside.safetensors"),
        str(tmp_path / "outside.safetensors"),
    ):
        with pytest.raises(ProtocolError, match="not a safetensors file right inside"):
            checked_files([str(good), bad], [folder])


def test_only_folders_of_servers_that_ended_are_removed(tmp_path: Path) -> None:
    name = f"grpo-doctor-weights-{2**22 + 5}-{'0' * 16}"
    (tmp_path / name).write_text("a file")
    (tmp_path / f"{name[:-1]}1").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"{name}0").mkdir()
    make_folders([tmp_path])
    assert (tmp_path / name).is_file()
    assert (tmp_path / f"{name[:-1]}1").is_symlink()
    assert (tmp_path / "elsewhere").is_dir()
    assert (tmp_path / f"{name}0").is_dir()


def test_each_parent_has_a_folder_with_a_token_of_its_own(tmp_path: Path) -> None:
    folders = make_folders([tmp_path / "a", tmp_path / "b", tmp_path / "a"])
    assert [Path(folder.path).parent.name for folder in folders] == ["a", "b", "a"]
    assert len({folder.path for folder in folders}) == 3
    assert len({folder.token for folder in folders}) == 3
    (Path(folders[0].path) / "token").write_bytes(b"\xff")
    assert [shared(folder) for folder in folders] == [False, True, True]


def test_names_of_files_are_plain(tmp_path: Path) -> None:
    (folder,) = make_folders([tmp_path])
    for name in ("part 0.safetensors", "part.0.safetensors", ".safetensors", "part.bin"):
        (Path(folder.path) / name).write_text("")
        with pytest.raises(ProtocolError, match="not a safetensors file"):
            checked_files([str(Path(folder.path) / name)], [folder])
    folder_of_that_name = Path(folder.path) / "deep.safetensors"
    folder_of_that_name.mkdir()
    with pytest.raises(ProtocolError, match="not a safetensors file"):
        checked_files([str(folder_of_that_name)], [folder])
