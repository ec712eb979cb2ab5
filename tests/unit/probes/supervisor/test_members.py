"""The job's processes, of real ones: who trains, who helps, and what a dead rank leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_doctor_probes.supervisor.deaths import DeathWatch
from grpo_doctor_probes.supervisor.members import SCAN_PERIOD_NS, Members, role_of

RANK = """
import os, subprocess, sys
subprocess.Popen(["VLLM::EngineCore", "-c", "import time; time.sleep(600)"],
                 executable=sys.executable)
print(os.getpid(), flush=True)
sys.stdin.read()
"""
PATIENCE_S = 30


@pytest.mark.parametrize(
    ("command", "words", "serves"),
    [
        ("VLLM::EngineCore", "the rollout engine", True),
        ("VLLM::Worker_TP0", "a rollout worker", True),
        ("sglang::detokenizer", "a helper of the rollout engine", True),
        ("sglang::scheduler", "the rollout engine", True),
        ("/usr/bin/python -m vllm.entrypoints.openai.api_server", "the rollout server", True),
        ("/opt/bin/python /opt/bin/trl vllm-serve --model x", "the rollout server", True),
        (
            "/usr/bin/python -c grpo_doctor_trainer.rewards.worker",
            "a reward process",
            True,
        ),
        ("/usr/bin/gcc -O2 x.c", "a helper (gcc)", False),
        (
            "/usr/bin/python -c multiprocessing.resource_tracker",
            "a helper (python)",
            False,
        ),
        ("", "a helper", False),
    ],
)
def test_roles(command: str, words: str, serves: bool) -> None:
    role = role_of("", tuple(command.split()))
    assert (role.words, role.serves) == (words, serves)


class Scans:
    """Scans one after the other, a period of its own clock apart."""

    def __init__(self, members: Members) -> None:
        self.members, self._now_ns = members, 0

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self._now_ns += SCAN_PERIOD_NS
            self.members.refresh(self._now_ns)
            if condition():
                return
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_helper_that_outlives_its_rank_does_not_pass_for_it(tmp_path: Path) -> None:
    job = subprocess.Popen(
        ["sh", "-c", f"RANK=0 LOCAL_RANK=0 {sys.executable} -c '{RANK}'; sleep 600"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    deaths = DeathWatch()
    members = Members(job.pid, tmp_path, deaths)
    scans = Scans(members)
    try:
        assert job.stdout
        rank = int(job.stdout.readline())
        scans.until(lambda: any(len(group.pids) == 2 for group in members.groups))
        (group,) = members.groups
        (engine,) = set(group.pids) - {rank}
        assert group.main == rank
        scans.until(lambda: deaths.watches(engine))
        os.kill(rank, signal.SIGKILL)
        scans.until(lambda: rank not in members.pids and bool(deaths.deaths))
        scans.until(lambda: engine in members.pids)
        assert members.groups == []
        members.kill()
        # The shell's `sleep` may be heard of first.
        scans.until(lambda: {rank, engine} <= {death.subject.pid for death in deaths.deaths})
        subjects = {death.subject.pid: death.subject for death in deaths.deaths}
        assert (subjects[rank].role, subjects[rank].rank) == ("rank 0", 0)
        role, its_rank = subjects[engine].role, subjects[engine].rank
        assert (role, its_rank) == ("the rollout engine of rank 0", None)
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.communicate()
        deaths.close()
        members.close()
