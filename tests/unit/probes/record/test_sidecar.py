"""Small files are replaced whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from grpo_doctor_probes.record import sidecar
from tests.unit.probes.conftest import full


def test_a_link_planted_in_the_folder_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "urandom", bytes)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / f"run.json.{bytes(8).hex()}.tmp").symlink_to(victim)
    (tmp_path / "metrics.jsonl").symlink_to(victim)
    for name, write in (("run.json", sidecar.write_json), ("metrics.jsonl", sidecar.append_line)):
        with pytest.raises(OSError):  # noqa: PT011 - which one is the kernel's choice
            write(str(tmp_path / name), {})
    assert victim.read_text() == "mine"


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.json"
    sidecar.write_json(str(path), {"a": 1})
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        sidecar.write_json(str(path), {"b": 2})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


def test_a_rank_file_that_can_not_be_written_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "write", full)
    sidecar.RankFile(str(tmp_path / "00000.json"), 0).write()
    assert list(tmp_path.iterdir()) == []


def test_the_first_word_about_a_role_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    role = sidecar.Role()
    assert role.of_this_process() is None
    role.take("driver")
    role.take("actor")
    assert role.of_this_process() == "driver"
    monkeypatch.setattr(os, "getpid", lambda: 4711)
    assert role.of_this_process() is None, "of a forked child"
    role.take("reward")
    assert role.of_this_process() == "reward"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, ["one"]),
        ("", ["one"]),
        ('{"a": 1}\n', ['{"a": 1}', "one"]),
        ('{"a": 1}', ['{"a": 1}', "one"]),  # cut off, or written by hand
        ("\n", ["", "one"]),
    ],
)
def test_a_line_is_always_one_of_its_own(
    tmp_path: Path, before: str | None, after: list[str]
) -> None:
    path = tmp_path / "metrics.jsonl"
    if before is not None:
        path.write_text(before)
    sidecar.append_line(str(path), "one")
    assert path.read_text().replace('"one"', "one").splitlines() == after
