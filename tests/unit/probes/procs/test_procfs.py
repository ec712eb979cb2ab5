"""Small reads of /proc, of this process itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from grpo_doctor_probes.procs.procfs import (
    descriptors,
    numbers,
    own_number,
    read,
    socket_inodes,
    status,
    variables,
)


def test_numbers_are_in_order_and_other_names_left_out() -> None:
    pids = numbers("/proc")
    assert os.getpid() in pids
    assert pids == sorted(set(pids))


def test_descriptors_and_what_they_point_to(tmp_path: Path) -> None:
    with (tmp_path / "held").open("w") as file:
        targets = dict(descriptors("/proc", os.getpid()))
        assert targets[file.fileno()] == str(tmp_path / "held")
        assert list(descriptors("/proc", os.getpid(), at_most=2)) == sorted(targets.items())[:2]
    with pytest.raises(FileNotFoundError):
        descriptors(tmp_path, 7)


def test_variables_of_any_bytes() -> None:
    environ = b"A=1\0EMPTY=\0NOT_ONE\0B=x=y\0\xff=\xfe\0\0"
    assert variables(environ) == {"A": "1", "EMPTY": "", "B": "x=y", "\udcff": "\udcfe"}
    assert variables(b"") == {}


def test_the_lines_of_a_status_file() -> None:
    assert status("/proc/self")["Pid"] == str(os.getpid())
    assert status("/proc/absent") == {}


def test_a_file_is_read_up_to_the_limit_and_not_a_byte_further(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(200_000))
    for limit, length in ((0, 0), (1, 1), (65_536, 65_536), (65_537, 65_537), (10**6, 200_000)):
        assert len(read(path, limit)) == length


def test_the_number_by_which_a_process_knows_itself(tmp_path: Path) -> None:
    for line, expected in (
        ("NSpid:\t4100\t7\n", 7),
        ("NSpid:\t4100\n", 4100),
        ("NSpid:\t\n", None),
        ("NSpid:\tx\n", None),
        ("Name:\ta\n", None),
    ):
        (tmp_path / "status").write_text(line)
        assert own_number(tmp_path) == expected
    assert own_number(tmp_path / "gone") is None


def test_sockets_among_descriptors() -> None:
    targets = ["socket:[12]", "pipe:[13]", "/socket:[14]", "socket:[15]"]
    assert list(socket_inodes(targets)) == ["12", "15"]
