from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from grpo_doctor_probes.samplers.hostfiles import ProcFile, Rate

S = 1_000_000_000


def test_a_file_is_read_anew_each_time(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("1")
    file = ProcFile(path)
    assert file.read() == b"1"
    path.write_text("22")
    assert file.read() == b"22"
    assert file.read_start() == b"22"
    file.close()


def test_long_files_of_proc_are_read_to_their_end() -> None:
    file = ProcFile("/proc/self/smaps")
    content = file.read()
    file.close()
    assert len(content) > os.sysconf("SC_PAGE_SIZE")
    assert content.endswith(b"\n")
    assert b"VmFlags" in content.splitlines()[-1] or b"ProtectionKey" in content.splitlines()[-1]


def test_the_file_of_an_ended_process_fails() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        file = ProcFile(Path("/proc") / str(child.pid) / "stat")
        assert b"(cat)" in file.read()
    with pytest.raises(ProcessLookupError):
        file.read()
    file.close()


def test_a_rate_is_per_second_of_the_time_between_reads() -> None:
    rate = Rate()
    assert rate.per_s(0, 1000) is None
    assert rate.per_s(S // 2, 1100) == 200
    assert rate.per_s(3 * S // 2, 1100) == 0


def test_a_counter_that_fell_gives_no_rate_once() -> None:
    rate = Rate()
    rate.per_s(0, 1000)
    assert rate.per_s(S, 10) is None
    assert rate.per_s(2 * S, 30) == 20
    assert rate.per_s(2 * S, 40) is None
