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
    find_jobs,
)
from grpo_doctor_probes.evidence import Job
from tests.integration.discover_jobs import HOSTILE
from tests.ports import free_port

pytestmark = pytest.mark.slow
StartJob = Callable[[int], tuple[int, list[int]]]


class Forge:
    """Forks jobs out of one process that has imported torch."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("discover_jobs.py"))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(),
        )  # fmt: skip
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def start(self, ranks: int) -> tuple[int, list[int]]:
        """A launcher and its ranks."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        wish = {"ranks": ranks, "port": free_port()}
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
def job(forge: Forge) -> Iterator[StartJob]:
    """Starts jobs that end with the test."""
    launchers: list[int] = []

    def start(ranks: int) -> tuple[int, list[int]]:
        launcher, pids = forge.start(ranks)
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


def test_forked_ranks_that_set_rank_late_and_all_that_belongs_to_them(job: StartJob) -> None:
    launcher, pids = job(3)
    (match,) = find_jobs([launcher])
    assert ranks(match) == {pid: rank for rank, pid in enumerate(pids)}
    assert (match.world_size, match.ranks_missing, match.notes) == (3, (), ())
    assert match.address.startswith("127.0.0.1:")
    assert match.local_ranks == 3
    roles = {(member.role, member.rank) for member in match.members}
    assert {("launcher", None), ("dataloader", 1), ("helper", 1)} <= roles
    assert len(match.members) == 4 + 2
    hostile = match.member(pids[1])
    assert hostile is not None
    assert hostile.name == HOSTILE.decode().replace("\x1b", "?").replace("\n", "?")
    for member in match.members:
        assert find_jobs([member.pid]) == (match,)


def test_jobs_forked_by_one_process_stay_apart(job: StartJob) -> None:
    first, second = job(2), job(2)
    everything = [ranks(match) for match in find_jobs()]
    assert {pid: rank for rank, pid in enumerate(first[1])} in everything
    assert {pid: rank for rank, pid in enumerate(second[1])} in everything
    assert len(find_jobs([first[1][0], first[1][1]])) == 1
    assert len(find_jobs([first[1][0], second[1][0]])) == 2


def test_a_dead_rank_keeps_its_number(job: StartJob) -> None:
    launcher, pids = job(3)
    os.kill(pids[1], signal.SIGKILL)
    await_end(pids[1])
    (match,) = find_jobs([launcher])
    assert ranks(match) == {pid: rank for rank, pid in enumerate(pids)}
    assert f"process {pids[1]} is rank 1" in match.notes[0]
    (same,) = find_jobs([pids[1]])
    assert ranks(same) == ranks(match)


def await_end(pid: int) -> None:
    """Until it is a zombie."""
    descriptor = os.pidfd_open(pid)
    assert select.select([descriptor], [], [], 10)[0]
    os.close(descriptor)
