"""Jobs of real processes, found from outside."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from grpo_doctor_probes.discover import (
    NoJobError,
    NoPermissionError,
    find_jobs,
)
from grpo_doctor_probes.evidence import Job
from tests.integration.discover_jobs import HOSTILE
from tests.ports import free_port

pytestmark = pytest.mark.slow
NOBODY = 65534
RANK = """
import os, sys, torch.distributed as dist
if False:
    import trl
dist.init_process_group("gloo")
dist.barrier()
os.write(1, f"{os.environ['RANK']} {os.getpid()}\\n".encode())  # in one piece, unlike print
sys.stdin.read()
"""


class Forge:
    """Forks jobs out of one process that has imported torch."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("discover_jobs.py"))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(),
        )  # fmt: skip
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def start(self, kind: str, ranks: int) -> tuple[int, list[int]]:
        """A launcher and its ranks."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        wish = {"way": kind, "ranks": ranks, "port": free_port()}
        self.process.stdin.write(json.dumps(wish) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return answer["launcher"], answer["ranks"]


def environment() -> dict[str, str]:
    unwanted = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_", "GRPO_DOCTOR", "TORCHELASTIC")
    variables = {k: v for k, v in os.environ.items() if not k.startswith(unwanted)}
    return variables | {"OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def forge() -> Iterator[Forge]:
    process = Forge()
    yield process
    process.process.kill()
    process.process.wait()


@pytest.fixture
def job(forge: Forge) -> Iterator[Callable[[str, int], tuple[int, list[int]]]]:
    """Starts jobs that end with the test."""
    launchers: list[int] = []

    def start(kind: str, ranks: int) -> tuple[int, list[int]]:
        launcher, pids = forge.start(kind, ranks)
        launchers.append(launcher)
        return launcher, pids

    yield start
    for launcher in launchers:
        end(launcher)


def end(launcher: int) -> None:
    """Kill a process and all below it."""
    with contextlib.suppress(psutil.NoSuchProcess):
        top = psutil.Process(launcher)
        family = [*top.children(recursive=True), top]
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family, timeout=10)


def ranks(match: Job) -> dict[int, int | None]:
    return {member.pid: member.rank for member in match.ranks()}


StartJob = Callable[[str, int], tuple[int, list[int]]]


def test_forked_ranks_that_set_rank_late_and_all_that_belongs_to_them(job: StartJob) -> None:
    launcher, pids = job("late", 3)
    (match,) = find_jobs([launcher])
    assert ranks(match) == {pid: rank for rank, pid in enumerate(pids)}
    assert (match.world_size, match.ranks_missing, match.notes) == (3, (), ())
    assert match.address.startswith("127.0.0.1:")
    assert match.local_ranks == 3
    roles = {(member.role, member.rank) for member in match.members}
    assert {("launcher", None), ("dataloader", 1), ("helper", 1)} <= roles
    assert len(match.members) == 4 + 2
    assert all(member.torch.startswith("2.") for member in match.ranks())
    hostile = match.member(pids[1])
    assert hostile is not None
    assert hostile.name == HOSTILE.decode().replace("\x1b", "?").replace("\n", "?")
    for member in match.members:
        assert find_jobs([member.pid]) == (match,)


def test_jobs_forked_by_one_process_stay_apart(job: StartJob) -> None:
    first, second = job("late", 2), job("late", 2)
    everything = [ranks(match) for match in find_jobs()]
    assert {pid: rank for rank, pid in enumerate(first[1])} in everything
    assert {pid: rank for rank, pid in enumerate(second[1])} in everything
    assert len(find_jobs([first[1][0], first[1][1]])) == 1
    assert len(find_jobs([first[1][0], second[1][0]])) == 2


def test_a_dead_rank_keeps_its_number(job: StartJob) -> None:
    launcher, pids = job("late", 3)
    os.kill(pids[1], signal.SIGKILL)
    await_end(pids[1])
    (match,) = find_jobs([launcher])
    assert ranks(match) == {pid: rank for rank, pid in enumerate(pids)}
    assert f"process {pids[1]} is rank 1" in match.notes[0]
    (same,) = find_jobs([pids[1]])
    assert ranks(same) == ranks(match)


def test_ranks_that_say_nothing_are_numbered_by_their_start(job: StartJob) -> None:
    _, pids = job("silent", 3)
    (match,) = find_jobs([pids[2]])
    assert ranks(match) == {pid: rank for rank, pid in enumerate(pids)}
    assert any("order of their start" in note for note in match.notes)
    assert match.world_size is None


def test_ranks_that_have_not_met_yet(job: StartJob) -> None:
    launcher, pids = job("waiting", 3)
    (match,) = find_jobs([launcher])
    assert ranks(match).keys() == set(pids)


@pytest.mark.heavy
def test_two_torchrun_jobs_of_one_shell_stay_two(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(RANK)
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        str(script), "--hub-token", "secret",
    ]  # fmt: skip
    launchers = [
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
        )
        for _ in range(2)
    ]
    try:
        pids = [dict(printed_ranks(launcher, 2)) for launcher in launchers]
        for launcher, expected in zip(launchers, pids, strict=True):
            (match,) = find_jobs([launcher.pid])
            assert {rank: pid for pid, rank in ranks(match).items()} == expected
            assert (match.world_size, match.local_ranks, match.framework) == (2, 2, "trl")
            assert [member.local_rank for member in match.ranks()] == [0, 1]
            assert "secret" not in "".join(member.command for member in match.members)
        assert len([match for match in find_jobs() if ranks(match).keys() & all_of(pids)]) == 2
        os.kill(launchers[0].pid, signal.SIGSTOP)  # else it would end the others
        os.kill(pids[0][1], signal.SIGKILL)
        await_end(pids[0][1])
        (match,) = find_jobs([pids[0][0]])
        assert ranks(match) == {pids[0][0]: 0, pids[0][1]: 1}
    finally:
        for launcher in launchers:
            end(launcher.pid)
            launcher.wait()


def all_of(pids: list[dict[int, int]]) -> set[int]:
    return {pid for ranks_of_job in pids for pid in ranks_of_job.values()}


def printed_ranks(launcher: subprocess.Popen[str], ranks: int) -> Iterator[tuple[int, int]]:
    """The rank and pid that each rank prints once it has met the others."""
    assert launcher.stdout is not None
    for _ in range(ranks):
        rank, pid = launcher.stdout.readline().split()
        yield int(rank), int(pid)


def await_end(pid: int) -> None:
    """Until it is a zombie."""
    descriptor = os.pidfd_open(pid)
    assert select.select([descriptor], [], [], 10)[0]
    os.close(descriptor)


def test_what_is_no_job(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "1000"]) as sleeping:
        with pytest.raises(NoJobError, match="it has not loaded torch"):
            find_jobs([sleeping.pid])
        sleeping.kill()
        os.waitid(os.P_PID, sleeping.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(NoJobError, match="a zombie"):
            find_jobs([sleeping.pid])
    with pytest.raises(NoJobError, match="there is no process"):
        find_jobs([sleeping.pid])
    with pytest.raises(NoJobError, match="no part of a training job"):
        find_jobs([os.getpid()])
    code = "print(1, flush=True); input()"
    idle = [sys.executable, "-c", code]
    with subprocess.Popen(idle, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as python:
        assert python.stdout is not None
        python.stdout.readline()
        with pytest.raises(NoJobError, match="no part of a training job"):
            find_jobs([python.pid])


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_another_user_is_told_what_to_do(job: StartJob) -> None:
    _, pids = job("late", 2)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        os.write(writing, f"{refusal([pids[0]])}\n{refusal([])}".encode())
        os._exit(0)
    os.close(writing)
    text = os.read(reading, 65536).decode()
    os.close(reading)
    os.waitpid(child, 0)
    by_pid, by_search = text.split("\n")
    assert by_pid.startswith("NoPermissionError"), text
    assert by_search.startswith("NoPermissionError"), text
    assert "belongs to root" in by_pid
    assert f"sudo {sys.executable} -m grpo_doctor attach" in by_pid


def refusal(pids: list[int]) -> str:
    """The problem that a search ends with."""
    try:
        find_jobs(pids)
    except (NoPermissionError, NoJobError) as problem:
        return f"{type(problem).__name__}: {problem}"
    return "found it"
