"""Which rank a process is, by what its recorder wrote, where its environment does not say it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_doctor_probes.discover import find_jobs
from grpo_doctor_probes.discover.rankfiles import read_written
from grpo_doctor_probes.discover.scan import scan
from tests.unit.probes.discover.fakeproc import FakeProc, rank_environment

# Recorded as a rank of a job is, then as setproctitle(3) does it: nothing is left of what the
# process was started with.
OVERWRITING = """
import ctypes, sys
from grpo_doctor_probes import phase
with phase("rollout"):
    pass
words = open("/proc/self/stat").read().rpartition(")")[2].split()
begin, end = int(words[47]), int(words[48])
ctypes.memset(begin, 0, end - begin)
print(__import__("os").getpid(), flush=True)
sys.stdin.read()
"""
PARENT = """
import subprocess, sys
sys.exit(subprocess.run([sys.executable, "-c", sys.argv[1]]).returncode)
"""


@pytest.mark.parametrize("large", [False, True])
def test_the_recorder_says_it_where_a_title_has_overwritten_the_environment(
    host: FakeProc, tmp_path: Path, large: bool
) -> None:
    run = tmp_path / "run"
    (run / "ranks").mkdir(parents=True)
    sizes = f'"host": "{os.uname().nodename}", "world_size": 2, "local_rank": null'
    for rank, pid in enumerate((101, 102)):
        text = f'{{"pid": {pid}, {sizes}}}'
        (run / "ranks" / f"{rank:05d}.json").write_text(text)
    (run / "ranks" / "pid103.json").write_text(f'{{"pid": 103, {sizes}}}')
    variables = {"GRPO_DOCTOR_RUN_DIR": str(run)}
    host.add(100, 50, "torchrun t.py", variables, name="torchrun")
    (host.root / "100" / "root").symlink_to("/")
    for pid in (101, 102, 103):
        host.add(pid, 100, "trainer: step 3", torch=large)
    host.add(110, 50, "trainer: step 3", torch=large)  # below no run
    (job,) = find_jobs((), host.root)
    assert [(m.pid, m.rank) for m in job.ranks()] == [(101, 0), (102, 1)]
    assert (job.world_size, job.run_dir) == (2, str(run))


def test_a_real_process_that_overwrites_its_environment_is_found_as_its_rank(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    (run / "ranks").mkdir(parents=True)
    sizes = {name: str(value) for name, value in rank_environment(1, 2).items()}
    environment = {**os.environ, "GRPO_DOCTOR_RUN_DIR": str(run), **sizes}
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, OVERWRITING],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as parent:  # fmt: skip
        assert parent.stdout is not None
        assert parent.stdin is not None
        pid = int(parent.stdout.readline())
        processes = scan(Path("/proc"))
        assert processes[pid].environment == {}
        written = read_written(Path("/proc"), processes)
        assert written.environments[pid] == {
            "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "GRPO_DOCTOR_RUN_DIR": str(run),
        }  # fmt: skip
        parent.stdin.close()
    assert parent.returncode == 0


@pytest.mark.parametrize(
    ("content", "rank"),
    [
        ({}, 4),
        ({"host": "another"}, None),
        ({"pid": "101"}, None),
        ({"padding": "x" * (1 << 20)}, None),
        (None, None),
    ],
    ids=["as it is written", "of another host", "not a number", "too long", "half written"],
)
def test_what_a_recorder_of_this_host_wrote(
    host: FakeProc, tmp_path: Path, content: dict[str, object] | None, rank: int | None
) -> None:
    run = tmp_path / "run"
    (run / "ranks").mkdir(parents=True)
    facts = {"host": os.uname().nodename, "pid": 101, "world_size": 8, **(content or {})}
    text = json.dumps(facts) if content is not None else '{"host": '
    (run / "ranks" / "00004.json").write_text(text)
    host.add(101, 50, "python t.py", {"GRPO_DOCTOR_RUN_DIR": run}, torch=True)
    (host.root / "101" / "root").symlink_to("/")
    assert read_written(host.root, scan(host.root)).ranks == ({} if rank is None else {101: rank})


@pytest.mark.parametrize(("more", "read"), [(0, True), (1, False)])
def test_a_file_of_a_mebibyte_is_the_longest(
    host: FakeProc, tmp_path: Path, more: int, read: bool
) -> None:
    run = tmp_path / "run"
    (run / "ranks").mkdir(parents=True)
    text = json.dumps({"host": os.uname().nodename, "pid": 101})
    (run / "ranks" / "00004.json").write_text(text.ljust((1 << 20) + more))
    host.add(101, 50, "python t.py", {"GRPO_DOCTOR_RUN_DIR": run})
    (host.root / "101" / "root").symlink_to("/")
    assert bool(read_written(host.root, scan(host.root)).ranks) is read
