from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_doctor_probes.procs.procstat import CLOCK_TICKS_PER_S
from grpo_doctor_probes.samplers.jobtree import SETTLED_NS, JobTree, Process, RankGroup, rank_groups
from tests.unit.probes.conftest import running

S = 1_000_000_000


def members(*rows: tuple[int, int, int | None, bool]) -> Any:
    """Processes, started in the order of their numbers."""
    return {
        pid: SimpleNamespace(
            pid=pid, parent=parent, started_ticks=pid,
            environment=({} if rank is None else {"RANK": str(rank)})
            | ({"LOCAL_RANK": "0"} if local else {}),
        )
        for pid, parent, rank, local in rows
    }  # fmt: skip


@pytest.mark.parametrize(
    ("tree", "declared", "groups"),
    [
        (  # torchrun; a data loader has its rank's environment, and its child a cleaned one
            [(10, 1, None, False), (20, 10, 0, True), (21, 20, 0, True), (22, 21, None, False),
             (30, 10, 1, True)],
            {}, [RankGroup(0, 20, (20, 21, 22)), RankGroup(1, 30, (30,))],
        ),
        (  # a cluster gives a node a rank
            [(10, 1, 0, False), (20, 10, 0, True), (30, 10, 1, True)],
            {}, [RankGroup(0, 20, (20,)), RankGroup(1, 30, (30,))],
        ),
        (  # no local ranks: a rank alone counts
            [(10, 1, None, False), (20, 10, 4, False), (21, 20, 4, False)],
            {}, [RankGroup(4, 20, (20, 21))],
        ),
        (  # a shell and its Python: the recorder knows better
            [(20, 1, 0, True), (21, 20, 0, True), (22, 21, 0, True)],
            {21: 0}, [RankGroup(0, 21, (20, 21, 22))],
        ),
        ([(20, 1, None, False), (21, 20, None, False)], {20: 0}, [RankGroup(0, 20, (20, 21))]),
        (  # two attempts: the older
            [(10, 1, None, False), (30, 10, 0, True), (20, 10, 0, True)],
            {}, [RankGroup(0, 20, (20, 30))],
        ),
        ([(10, 1, None, False)], {}, []),
        ([], {99: 0}, []),
    ],
)  # fmt: skip
def test_which_processes_are_a_rank(
    tree: list[tuple[int, int, int | None, bool]], declared: dict[int, int],
    groups: list[RankGroup],
) -> None:  # fmt: skip
    assert rank_groups(members(*tree), declared) == groups


PARENT = """
import subprocess, sys
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True)
print(child.pid, flush=True)
sys.stdin.readline()
child.communicate()
print("child is gone", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def parent_and_child() -> Iterator[tuple[subprocess.Popen[str], int]]:
    pipe, environ = subprocess.PIPE, {**os.environ, "RANK": "1", "LOCAL_RANK": "1"}
    command = [sys.executable, "-c", PARENT]
    parent = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environ)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    yield parent, child
    parent.communicate()


def test_real_descendants_are_found_and_forgotten(
    tmp_path: Path, parent_and_child: tuple[subprocess.Popen[str], int]
) -> None:
    parent, child = parent_and_child
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as stranger:
        tree = JobTree(parent.pid, tmp_path, "a")
        tree.scan(0)
        assert stranger.pid not in tree.processes
    assert tree.scan(0) == [RankGroup(1, parent.pid, tuple(sorted((parent.pid, child))))]
    assert set(tree.processes) == {parent.pid, child}
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write("\n")
    parent.stdin.flush()
    assert parent.stdout.readline() == "child is gone\n"
    assert tree.scan(1 * S) == [RankGroup(1, parent.pid, (parent.pid,))]
    parent.communicate()
    assert tree.scan(2 * S) == []
    assert tree.processes == {}


def is_process(folder: Path, pid: int, parent: int, started_ticks: int, environment: str) -> None:
    """A process of the /proc in this folder, or what it has become."""
    own = folder / f"proc/{pid}"
    own.mkdir(parents=True, exist_ok=True)
    fields = f"S {parent} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {started_ticks} 1000 25 0 0 0"
    (own / "stat").write_text(f"{pid} (python) {fields}")
    (own / "environ").write_text(environment)
    (folder / "ranks").mkdir(exist_ok=True)


@pytest.mark.parametrize(
    ("step", "task", "ours"),
    [("0", "1", True), ("0", "0", False), ("1", "1", False)],  # of an earlier launch, or our own
)
def test_another_task_of_the_same_launch_is_ours_however_old(
    tmp_path: Path, step: str, task: str, *, ours: bool
) -> None:
    launch = "SLURM_JOB_ID=7\0SLURM_STEP_ID={}\0SLURM_LOCALID={}\0RANK={}\0LOCAL_RANK={}"
    is_process(tmp_path, 10, 5, 500, launch.format("0", "0", "0", "0"))
    before = launch.format(step, task, "1", "1")
    is_process(tmp_path, 20, 5, 100, before)  # `grpo-doctor run`, which will become the rank
    tree = JobTree(10, tmp_path, "a", proc=tmp_path / "proc")
    assert tree.scan(0) == [RankGroup(0, 10, (10,))]
    is_process(tmp_path, 20, 5, 100, f"{before}\0GRPO_DOCTOR_RUN_DIR={tmp_path}")
    assert tree.scan(1 * S) == [RankGroup(0, 10, (10,)), *([RankGroup(1, 20, (20,))] * ours)]


def test_a_stranger_is_looked_at_again_while_it_may_still_become_ours(tmp_path: Path) -> None:
    just_now = round(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
    is_process(tmp_path, 77, 5, just_now, "PATH=/bin")  # of its parent, before exec
    tree = JobTree(1, tmp_path, "a", proc=tmp_path / "proc")
    assert tree.scan(0) == []
    is_process(tmp_path, 77, 5, just_now, f"GRPO_DOCTOR_RUN_DIR={tmp_path}\0RANK=1")
    assert tree.scan(1 * S) == [RankGroup(1, 77, (77,))]


class Declared:
    """A job of process 10 with its child 20, whose ranks its files alone tell."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for pid, parent in ((10, 1), (20, 10)):
            is_process(folder, pid, parent, pid, "")
        (folder / "ranks/00009.json").write_text("{half")
        self.tree = JobTree(10, folder, "here", proc=folder / "proc")

    def file(self, name: str, pid: int, host: str = "here", *, at_s: int, size: int = 0) -> None:
        path = self.folder / "ranks" / name
        path.write_text(json.dumps({"pid": pid, "host": host}).ljust(size))
        os.utime(path, (at_s, at_s))

    def mains(self) -> dict[int, int]:
        """The main process of each rank."""
        return {group.rank: group.main for group in self.tree.scan(0)}


def test_a_rank_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    job = Declared(tmp_path)
    job.file("00003.json", 10, at_s=1)
    assert job.mains() == {3: 10}
    job.file("00003.json", 20, at_s=1)
    assert job.mains() == {3: 10}
    job.file("00003.json", 20, at_s=2)
    job.file("00004.json", 10, "there", at_s=1)
    assert job.mains() == {3: 20}
    job.file("00004.json", 10, at_s=2)  # one of another host is read once
    assert job.mains() == {3: 20}


@pytest.mark.parametrize(
    ("name", "size", "counts"),
    [
        ("00003.json", 1 << 20, True),
        ("00003.json", (1 << 20) + 1, False),
        ("notes.json", 0, False),
        ("00003.4.json", 0, False),
    ],
)
def test_which_files_name_a_rank(tmp_path: Path, name: str, size: int, *, counts: bool) -> None:
    job = Declared(tmp_path)
    job.file(name, 10, at_s=1, size=size)
    assert job.mains() == ({3: 10} if counts else {})


PROC = Path("/proc")
STAT = (
    b"4242 (a) R (b)) S 17 1 1 0 -1 4194304 100 200 9 8 150 50 70 80 20 0 33 0 987 1000000 25"
    b" 18446744073709551615 0 0 0\n"
)


@pytest.fixture(autouse=True)
def stat(tmp_path: Path) -> Path:
    """That of process 4242 in a /proc of its own."""
    (tmp_path / "4242").mkdir()
    (tmp_path / "4242" / "stat").write_bytes(STAT)
    return tmp_path / "4242" / "stat"


def test_stat_with_a_name_made_to_mislead_and_a_zombie(tmp_path: Path, stat: Path) -> None:
    process = Process(4242, tmp_path, now_ns=0)
    assert (process.parent, process.started_ticks) == (17, 987)
    usage = process.usage()
    assert usage is not None
    assert (usage.cpu_ticks, usage.major_faults, usage.threads) == (200, 9, 33)
    assert usage.rss_bytes == 25 * os.sysconf("SC_PAGE_SIZE")
    stat.write_bytes(STAT.replace(b" 987 ", b" 988 "))  # another one, of the same number
    assert process.usage() is None
    stat.write_bytes(STAT.replace(b") S ", b") Z "))
    assert process.usage() is None
    with pytest.raises(ProcessLookupError):
        Process(4242, tmp_path, now_ns=0)


def test_a_real_process() -> None:
    environ = {"RANK": "5", "LOCAL_RANK": "1", "GRPO_DOCTOR_RUN_DIR": "/tmp/run", "PATH": "/bin"}
    with running("sh", "-c", "echo; read x", environment=environ) as child:
        process = Process(child.pid, PROC, now_ns=0)
        usage = process.usage()
        assert usage is not None
        assert (usage.parent, usage.threads) == (os.getpid(), 1)
        assert process.environment == {
            "RANK": "5", "LOCAL_RANK": "1", "GRPO_DOCTOR_RUN_DIR": "/tmp/run",
        }  # fmt: skip
    assert process.usage() is None


def test_the_environment_is_read_again_until_it_has_settled(tmp_path: Path) -> None:
    folder = tmp_path / "4242"
    (folder / "environ").write_bytes(b"PATH=/bin\0")
    process = Process(4242, tmp_path, now_ns=7 * SETTLED_NS)
    assert process.environment == {}
    (folder / "environ").write_bytes(b"RANK=2\0")  # as after exec
    process.read_environment(8 * SETTLED_NS)
    assert process.environment == {"RANK": "2"}
    (folder / "environ").write_bytes(b"RANK=9\0")
    process.read_environment(8 * SETTLED_NS + 1)
    assert process.environment == {"RANK": "2"}


@pytest.mark.parametrize(("age_s", "young"), [(0.0, True), (1.9, True), (2.0, False)])
def test_a_process_is_young_until_its_exec_must_be_over(
    age_s: float, young: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(os.getpid(), Path("/proc"), 0)
    process.started_ticks = int((1000 - age_s) * CLOCK_TICKS_PER_S)
    monkeypatch.setattr(time, "clock_gettime", lambda _: 1000.0)
    assert process.is_young() == young
