"""Where ranks write dumps: their environment as the kernel shows it, on a made-up /proc."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_doctor_probes.evidence import Job, Member
from grpo_doctor_probes.flight.dump_locations import (
    dump_prefixes,
    environment,
    known_dump_files,
    seen_from_here,
    started_unix_s,
)

HZ = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc without processes."""
    folder = tmp_path / "proc"
    folder.mkdir()
    return folder


def rank(proc: Path, pid: int, number: int, **variables: str) -> Member:
    """A rank that started 100 s ago."""
    (proc / str(pid)).mkdir()
    text = "".join(f"{name}={value}\0" for name, value in variables.items())
    (proc / str(pid) / "environ").write_text(text + "NOT A VARIABLE\0")
    started_ticks = int((time.clock_gettime(time.CLOCK_BOOTTIME) - 100) * HZ)
    return Member(pid, 1, started_ticks, "rank", "python", "train.py", rank=number)


def job(*members: Member, run_dir: str = "") -> Job:
    return Job("here", members, run_dir=run_dir)


def written(path: Path, seconds_ago: float = 5) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    at = time.time() - seconds_ago
    os.utime(path, (at, at))
    return path


def test_the_environment_says_where(proc: Path, tmp_path: Path) -> None:
    prefix = f"{tmp_path}/dumps/fr_"
    ranks = [rank(proc, 10 + n, n, TORCH_FR_DUMP_TEMP_FILE=prefix) for n in range(2)]
    first = written(tmp_path / "dumps" / "fr_0")
    second = written(tmp_path / "dumps" / "fr_1_20261121")
    written(tmp_path / "dumps" / "other")
    assert known_dump_files(job(*ranks), proc) == (first, second)


def test_a_dump_from_before_the_rank_started_is_another_jobs(proc: Path, tmp_path: Path) -> None:
    member = rank(proc, 10, 0, TORCH_NCCL_DEBUG_INFO_TEMP_FILE=f"{tmp_path}/fr_")
    written(tmp_path / "fr_0", seconds_ago=200)
    assert known_dump_files(job(member), proc) == ()


def test_the_run_directory_has_a_folder_for_them(proc: Path, tmp_path: Path) -> None:
    file = written(tmp_path / "run" / "flight" / "rank_0")
    os.mkfifo(tmp_path / "run" / "flight" / "rank_0.pipe")
    assert known_dump_files(job(run_dir=str(tmp_path / "run")), proc) == (file,)


def test_the_environment_of_what_may_not_be_read_is_not_read(proc: Path) -> None:
    """Who reads it waits for a lock that a hanging thread may hold."""
    member = rank(proc, 10, 0, HOME="/home/me")
    assert environment(member, proc) == {"HOME": "/home/me"}
    assert environment(replace(member, readable=False), proc) == {}


NAMES = ("nccl_trace_rank_", "comm_lib_trace_rank_")


@pytest.mark.parametrize(
    ("variables", "caches"),
    [
        ({"HOME": "/home/me"}, "/home/me/.cache"),
        ({"HOME": "/home/me", "XDG_CACHE_HOME": "/cache"}, "/cache"),
        ({"HOME": "/home/me", "XDG_CACHE_HOME": ""}, "/home/me/.cache"),
        ({}, "/root/.cache"),
    ],
)
def test_torchs_own_places(proc: Path, variables: dict[str, str], caches: str) -> None:
    member = rank(proc, 10, 0, **variables)
    expected = [path for name in NAMES for path in (f"/tmp/{name}", f"{caches}/torch/{name}")]
    assert [str(path) for path in dump_prefixes(member, proc)] == expected


def test_when_a_process_started(proc: Path) -> None:
    member = rank(proc, 10, 0)
    earliest, started_s, latest = time.time(), started_unix_s(member), time.time()
    assert earliest - 101.1 <= started_s <= latest - 100.9  # and a second, as clocks may differ
    assert started_unix_s(replace(member, started_ticks=0)) == 0.0


@pytest.mark.parametrize(
    ("other_space", "root", "through_root"),
    [(True, "/", True), (False, "/", False), (False, "/srv/job", True), (True, "/srv/job", True)],
)
def test_a_path_is_the_same_for_who_has_our_file_system(
    proc: Path, other_space: bool, root: str, through_root: bool
) -> None:
    own = Path("/proc/self/ns/mnt").readlink()
    (proc / "10" / "ns").mkdir(parents=True)
    (proc / "10" / "ns" / "mnt").symlink_to("mnt:[1]" if other_space else own)
    (proc / "10" / "root").symlink_to(root)
    expected = proc / "10" / "root" / "tmp/x" if through_root else Path("/tmp/x")
    assert seen_from_here(10, "/tmp/x", proc) == expected
