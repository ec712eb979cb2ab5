"""The watchdog of `grpo-doctor run` around real jobs that hang, die, or only take long."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor_probes.procs.procstat import state_of
from tests.integration.test_run import alive, run_command, wait_for

pytest.importorskip("torch", reason="needs the trainer extra")
pytestmark = pytest.mark.slow
PATIENCE_S = 120
JOB = Path(__file__).with_name("watched_job.py")
SMALL = {**os.environ, "OMP_NUM_THREADS": "1"}

ONE_RANK = """
import sys, time
from grpo_doctor_probes import phase, step
for number in range(3):
    with step(number), phase("rollout"):
        time.sleep(0.2)
with step(3), phase("rollout"):
    {what}
"""
COMPUTE = "end = time.monotonic() + 6\n    while time.monotonic() < end: sum(range(10000))"


@contextmanager
def started(folder: Path, *options: str, job: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A watched job, which is ended with all its processes."""
    process = subprocess.Popen(
        run_command("-o", str(folder / "run"), "--no-report", *options, job=job),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=SMALL, start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def read_until(process: subprocess.Popen[str], words: str) -> str:
    """What it says on standard error up to a line with these words, or to its end."""
    assert process.stderr
    text = ""
    for line in process.stderr:
        text += line
        if words in line:
            break
    return text


def run_facts(folder: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((folder / "run" / "run.json").read_text())
    return facts


def rank_pids(folder: Path) -> list[int]:
    paths = sorted((folder / "run" / "ranks").glob("?????.json"))
    return [int(json.loads(path.read_text())["pid"]) for path in paths]


def is_held(supervisor: int, pid: int) -> bool:
    """Whether the supervisor has a pidfd of the process."""
    for path in Path(f"/proc/{supervisor}/fdinfo").iterdir():
        with contextlib.suppress(OSError):
            if f"Pid:\t{pid}\n" in path.read_text():
                return True
    return False


@pytest.mark.heavy
def test_a_stopped_rank_is_reported_and_ctrl_c_ends_it_all(tmp_path: Path) -> None:
    job = [sys.executable, str(JOB), str(tmp_path)]
    with started(tmp_path, "--hang-after", "4", job=job) as process:
        stderr = read_until(process, "attach --replay")
        assert stderr.split("\n\n")[1].startswith("Rank 1 is stopped"), stderr
        assert (tmp_path / "run/hangs/0").is_dir()
        pids = rank_pids(tmp_path)
        assert all(alive(pid) for pid in pids)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
    facts = run_facts(tmp_path)
    assert process.returncode == 1
    assert facts["end"]["state"] == "interrupted"
    (hang,) = facts["hangs"]
    assert (hang["class"], hang["culprits"]) == ("rank-stopped", [1])
    wait_for(lambda: not any(alive(pid) for pid in pids))


def test_a_supervisor_that_was_suspended_goes_on(tmp_path: Path) -> None:
    """As by Ctrl-Z and `fg`, for longer than it waits for a signal."""
    job = [sys.executable, "-c", ONE_RANK.format(what="sys.stdin.read(1)")]
    with started(tmp_path, job=job) as process:
        wait_for(lambda: rank_pids(tmp_path))
        for _ in range(3):
            os.kill(process.pid, signal.SIGSTOP)
            wait_for(lambda: state_of(f"/proc/{process.pid}") == "T")
            time.sleep(1)
            os.kill(process.pid, signal.SIGCONT)
            wait_for(lambda: state_of(f"/proc/{process.pid}") != "T")
        _, stderr = process.communicate("x", timeout=PATIENCE_S)
    assert process.returncode == 0, stderr
    assert run_facts(tmp_path)["end"]["state"] == "finished"


def test_a_killed_rank_is_named_first(tmp_path: Path) -> None:
    kill = "sys.stdin.read(1); import os; os.kill(os.getpid(), 9)"
    rank = f'RANK=1 LOCAL_RANK=1 {sys.executable} -c "$0"'
    job = ["sh", "-c", f"{rank}; exit 1", ONE_RANK.format(what=kill)]
    with started(tmp_path, job=job) as process:
        (pid,) = wait_for(lambda: rank_pids(tmp_path))
        wait_for(lambda: is_held(process.pid, pid))
        _, stderr = process.communicate("x", timeout=PATIENCE_S)
    assert process.returncode == 1
    assert f"rank 1 (pid {pid}) died first, by SIGKILL, while in rollout" in stderr, stderr
    (death,) = [d for d in run_facts(tmp_path)["deaths"] if d["rank"] is not None]
    assert (death["rank"], death["signal"], death["phase"]) == (1, "SIGKILL", "rollout")


@pytest.mark.heavy
def test_a_phase_that_only_takes_long_is_no_hang(tmp_path: Path) -> None:
    job = [sys.executable, "-c", ONE_RANK.format(what=COMPUTE)]
    with started(tmp_path, "--hang-after", "2", "--on-hang", "stop", job=job) as process:
        _, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, stderr
    assert "attach --replay" not in stderr
    assert list((tmp_path / "run/hangs").iterdir()) == []
    assert "hangs" not in run_facts(tmp_path)
