"""Which span files are looked at."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from grpo_doctor_probes.supervisor.headers import Headers

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
    assert [h.pid for h in headers.read({second, other})] == [second, other]
