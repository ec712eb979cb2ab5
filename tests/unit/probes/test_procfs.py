"""Small reads of /proc, of this process itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from grpo_doctor_probes.procfs import descriptors, numbers, read, status


def test_reading_stops_at_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"x" * 200_000)
    assert len(read(path, 150_000)) == 150_000
    assert len(read(path)) == 200_000


def test_numbers_are_in_order_and_other_names_left_out() -> None:
    found = numbers("/proc")
    assert os.getpid() in found
    assert found == sorted(set(found))


def test_descriptors_and_what_they_point_to(tmp_path: Path) -> None:
    with (tmp_path / "held").open("w") as held:
        found = dict(descriptors("/proc", os.getpid()))
        assert found[held.fileno()] == str(tmp_path / "held")
        assert list(descriptors("/proc", os.getpid(), at_most=2)) == sorted(found.items())[:2]
    with pytest.raises(FileNotFoundError):
        descriptors(tmp_path, 7)


def test_the_lines_of_a_status_file() -> None:
    assert status("/proc/self")["Pid"] == str(os.getpid())
    assert status("/proc/absent") == {}
