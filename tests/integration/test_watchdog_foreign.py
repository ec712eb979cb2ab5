"""The watchdog around jobs that know nothing of it: plain torchrun, a script without a recorder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.hang.collection import bundle
from tests.integration.test_run import alive
from tests.integration.test_watchdog import is_held, run_facts, started

pytest.importorskip("torch", reason="needs the trainer extra")
pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(600)]
JOB = Path(__file__).with_name("foreign_job.py")
PATIENCE_S = 180
DETECTED_WITHIN_S = 10.0


def wait_for(condition: Callable[[], Any]) -> None:
    """Polls; torch alone takes half a minute to start on a busy machine."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


@contextmanager
def foreign(
    folder: Path, fault: str, *options: str, timeout_s: float = 600
) -> Iterator[subprocess.Popen[str]]:
    """A watched job under torchrun; `go` lets its fault happen."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    job = [*torchrun, "--nproc_per_node=2", str(JOB), str(folder), fault, str(timeout_s)]
    with started(folder, *options, job=job) as process:
        try:
            wait_for(lambda: len(list(folder.glob("?.pid"))) == 2)
            yield process
        finally:
            # Both are in sessions of their own: nothing else ends them where a test fails.
            for path in (*folder.glob("?.engine"), *folder.glob("?.pid")):
                end(int(path.read_text()))


def end(pid: int) -> None:
    if alive(pid):
        os.kill(pid, signal.SIGKILL)


def go(folder: Path, supervisor: int | None = None) -> None:
    """Lets the fault happen, once the supervisor watches all that may die of it."""
    if supervisor is not None:
        pids = [int(path.read_text()) for path in (*folder.glob("?.pid"), *folder.glob("?.engine"))]
        wait_for(lambda: all(is_held(supervisor, pid) for pid in pids))
    (folder / "go").touch()


def rank(folder: Path, number: int) -> int:
    return int((folder / f"{number}.pid").read_text())


def seconds_stuck(folder: Path, until: str) -> float:
    """From when the rank got stuck to a moment of its hang: `asked_ns`, or `at_ns`."""
    hung_ns = int((folder / "hung_ns").read_text())
    return (int(run_facts(folder)["hangs"][0][until]) - hung_ns) / 1e9


def test_a_stuck_job_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    limit_s = 6
    with foreign(tmp_path, "sleep", "--hang-after", str(limit_s), "--on-hang", "stop") as process:
        go(tmp_path, process.pid)
        _, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 3, stderr
    assert run_facts(tmp_path)["end"]["state"] == "hung"
    (hang,) = run_facts(tmp_path)["hangs"]
    assert hang["culprits"] == [1], stderr
    assert hang["summary"].startswith("Rank 1 "), stderr
    assert "compute_rewards" in stderr
    # What the look itself takes is the machine's business.
    assert seconds_stuck(tmp_path, "asked_ns") <= limit_s + DETECTED_WITHIN_S
    children = [int(path.read_text()) for path in tmp_path.glob("?.engine")]
    deaths = run_facts(tmp_path)["deaths"]
    assert sorted(d["rank"] for d in deaths if d["rank"] is not None) == [0, 1]
    assert {d["role"] for d in deaths if d["pid"] in children} == {
        "the rollout engine of rank 0",
        "the rollout engine of rank 1",
    }
    # They are in sessions of their own and deaf to SIGTERM.
    assert not any(alive(pid) for pid in (rank(tmp_path, 0), rank(tmp_path, 1), *children))


def test_the_evidence_is_kept_before_torch_gives_up(tmp_path: Path) -> None:
    timeout_s = 60
    with foreign(tmp_path, "sleep", "--hang-after", "6", timeout_s=timeout_s) as process:
        go(tmp_path)
        _, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, stderr
    facts = run_facts(tmp_path)
    assert facts["end"]["state"] == "failed"
    assert "hangs" in facts, stderr
    (hang,) = facts["hangs"]
    assert (hang["culprits"], hang["at_ns"] < facts["end"]["ended_ns"]) == ([1], True)
    assert seconds_stuck(tmp_path, "at_ns") < timeout_s
    capture = bundle.read(Path(hang["bundle"]))
    assert sum(bool(dump.data) for dump in capture.dumps) == 2  # both ranks' recorders, while alive
    assert "first" in stderr  # who gave up first is told as well
    assert "the job moves again" not in stderr  # what they do on their way out is no progress


def test_a_rank_that_dies_while_it_is_looked_at_is_told_to_have_died(tmp_path: Path) -> None:
    with foreign(tmp_path, "sleep", "--hang-after", "4") as process:
        go(tmp_path, process.pid)
        wait_for((tmp_path / "run/hangs/0").exists)  # the look has begun
        os.kill(rank(tmp_path, 1), signal.SIGKILL)
        _, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert f"rank 1 (pid {rank(tmp_path, 1)}) died first, by SIGKILL" in stderr, stderr
    assert "the job moves again" not in stderr
    assert "internal error" not in stderr
    assert not lookers(tmp_path)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("segfault", "rank 1 (pid {rank}) died first, by SIGSEGV"),
        ("raises", "rank 1 (pid {rank}) ended first, with exit code 1"),
        ("engine_dies", "the rollout engine of rank 1 (pid {engine}) had ended"),
    ],
)
def test_who_died_first_is_told(tmp_path: Path, fault: str, message: str) -> None:
    with foreign(tmp_path, fault) as process:
        go(tmp_path, process.pid)
        _, stderr = process.communicate(timeout=PATIENCE_S)
    engine = int((tmp_path / "1.engine").read_text())
    assert message.format(rank=rank(tmp_path, 1), engine=engine) in stderr, stderr
    assert process.returncode == 1
    first = next(death for death in run_facts(tmp_path)["deaths"] if death["rank"] is not None)
    assert first["rank"] == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="making a control group needs root")
@pytest.mark.skipif(
    not Path("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists(),
    reason="the memory controller is not of version 1 here",
)
def test_a_rank_killed_for_memory_is_told(tmp_path: Path) -> None:
    group = Path(f"/sys/fs/cgroup/memory/grpo-doctor-foreign-{os.getpid()}")
    group.mkdir()
    try:
        with foreign(tmp_path, "out_of_memory") as process:
            (group / "cgroup.procs").write_text(str(rank(tmp_path, 1)))
            (group / "memory.limit_in_bytes").write_text(str(128 << 20))
            go(tmp_path, process.pid)
            _, stderr = process.communicate(timeout=PATIENCE_S)
        assert f"rank 1 (pid {rank(tmp_path, 1)}) died first, by SIGKILL; the kernel" in stderr, (
            stderr
        )
    finally:
        group.rmdir()


def test_ctrl_c_while_the_job_is_looked_at_loses_nothing(tmp_path: Path) -> None:
    with foreign(tmp_path, "sleep", "--hang-after", "4") as process:
        go(tmp_path)
        wait_for((tmp_path / "run/hangs/0").exists)  # the look has begun
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=PATIENCE_S)
    facts = run_facts(tmp_path)
    assert facts["end"]["state"] == "interrupted"
    assert "hangs" not in facts  # ranks that end of Ctrl-C are no hang
    assert not list((tmp_path / "run/hangs").iterdir())
    assert not any(alive(rank(tmp_path, number)) for number in range(2))
    assert not lookers(tmp_path), stderr
    assert json.loads((tmp_path / "run/run.json").read_text())["command"]


def lookers(folder: Path) -> list[str]:
    """Processes that still look at the job."""
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if "attach" in command and str(folder / "run") in command:
            commands.append(command)
    return commands
