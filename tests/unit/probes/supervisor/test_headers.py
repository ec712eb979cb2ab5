"""Which span files are looked at."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from grpo_doctor_probes.supervisor.standing import Headers

TWICE = "from grpo_doctor_probes import phase\nwith phase('init'): pass"


def record(folder: Path, rank: int) -> int:
    environment = {**os.environ, "GRPO_DOCTOR_RUN_DIR": str(folder), "RANK": str(rank)}
    process = subprocess.Popen([sys.executable, "-c", TWICE], env=environment)
    assert process.wait(60) == 0
    return process.pid


def test_a_damaged_file_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    (tmp_path / "ranks" / "00000.spans").write_bytes(b"short")
    assert Headers(tmp_path).read() == []


def test_a_restarted_rank_counts_once_it_is_known_to_train(tmp_path: Path) -> None:
    first, second = record(tmp_path, 0), record(tmp_path, 0)
    other = record(tmp_path, 1)
    assert (tmp_path / "ranks" / f"00000.{second}.spans").exists()
    headers = Headers(tmp_path)
    assert [h.pid for h in headers.read()] == [first, other]
    assert [h.pid for h in headers.read({second: 0, other: 1})] == [second, other]


def test_processes_go_by_our_numbers_though_they_know_themselves_by_others(tmp_path: Path) -> None:
    """In a container the recorder writes the number that the process has there."""
    first, second = record(tmp_path, 0), record(tmp_path, 0)
    other = record(tmp_path, 1)
    own = {4711: first, 4712: second, 4713: other, 4714: other}
    for pid, number in own.items():
        (tmp_path / "proc" / str(pid)).mkdir(parents=True)
        (tmp_path / "proc" / str(pid) / "status").write_text(f"NSpid:\t{pid}\t{number}\n")
    headers = Headers(tmp_path, tmp_path / "proc")
    assert [h.pid for h in headers.read({4711: 0, 4713: 1})] == [4711, 4713]
    assert [h.pid for h in headers.read({4712: 0, 4713: 1})] == [4712, 4713]
    assert [h.pid for h in headers.read({})] == [4711, 4713]  # they have ended
    elsewhere = Headers(tmp_path, tmp_path / "proc")  # its rank 2 has the number of our rank 1
    assert [h.pid for h in elsewhere.read({4712: 0, 4714: 2})] == [4712, other]
