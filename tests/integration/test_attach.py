"""`grpo-doctor attach` on plain torchrun jobs that nobody prepared, as a new user would run it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from tests.integration.apart import ISOLATING, OWN_MEMORY, end, may_isolate

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(600)]

RANKS = 4
GUILTY = 2
_DEADLINE_S = 240.0
_YOUNG_S = 60.0
_JOB = """
import datetime, os, pathlib, signal, sys, time
import torch, torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=600))
fault, marks, rank = sys.argv[1], pathlib.Path(sys.argv[2]), dist.get_rank()

def compute_rewards(step):
    time.sleep(0.02)
    if step == 25:
        (marks / str(rank)).touch()
        if fault == "stopped" and rank == 2:
            os.kill(os.getpid(), signal.SIGSTOP)

def update_weights(step):
    values = torch.ones(64)
    if step == 25 and fault == "mismatch" and rank == 2:
        dist.broadcast(values, src=2)
        dist.barrier()
    dist.all_reduce(values)

for step in range(100_000):
    compute_rewards(step)
    update_weights(step)
"""


@dataclass(frozen=True)
class Running:
    """A job, and what starts commands where they see it."""

    launcher: int
    inside: tuple[str, ...]

    def attach(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.inside, sys.executable, "-m", "grpo_doctor", "attach", *arguments],
            capture_output=True, text=True, timeout=_DEADLINE_S, check=False,
            env={**os.environ, "COLUMNS": "100"}, **options,
        )  # fmt: skip

    def document(self, *arguments: str) -> dict[str, Any]:
        done = self.attach("--json", *arguments)
        assert done.stdout, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document


def apart(command: Sequence[str]) -> list[str]:
    """The command in a process namespace of its own, where that is allowed: other jobs of this
    machine would be found by an attach without arguments."""
    if may_isolate():
        return [*ISOLATING, "sh", "-c", OWN_MEMORY + 'timeout 600 "$@" & wait', "sh", *command]
    return list(command)


@contextmanager
def running(fault: str, folder: Path) -> Iterator[Running]:
    """A job of four ranks in whose 25th step the fault happens, once it has."""
    marks = folder / "marks"
    marks.mkdir()
    (folder / "train.py").write_text(_JOB)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    torchrun += [f"--nproc_per_node={RANKS}", str(folder / "train.py"), fault, str(marks)]
    command = apart(torchrun)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
    try:
        deadline = time.monotonic() + _DEADLINE_S
        while len(list(marks.iterdir())) < RANKS:
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.05)
        yield Running(process.pid, _entering(process.pid) if command != torchrun else ())
    finally:
        end(process)


def _entering(outside: int) -> tuple[str, ...]:
    (shell,) = psutil.Process(outside).children()
    return ("nsenter", "--target", str(shell.pid), "--pid", "--mount", "--")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running("stopped", tmp_path_factory.mktemp("stopped")) as job:
        yield job


def first_line_of(job: Running) -> str:
    done = job.attach()
    start_s = time.monotonic()
    while done.returncode == 0 and time.monotonic() - start_s < _YOUNG_S:
        done = job.attach()  # a wait of a second is no hang yet, whatever it is for
    if done.returncode == 2:
        pytest.skip("other jobs run on this machine and this user may make no process namespace")
    assert done.returncode == 3, done.stderr
    return done.stdout.splitlines()[0]


def test_the_first_line_names_the_stopped_rank_and_the_reason(stopped: Running) -> None:
    line = first_line_of(stopped)
    assert f"Rank {GUILTY}" in line
    assert "stopped" in line
    assert "compute_rewards" in line


def test_the_first_line_names_the_rank_that_calls_another_collective(tmp_path: Path) -> None:
    with running("mismatch", tmp_path) as job:
        line = first_line_of(job)
        assert f"rank {GUILTY}" in line.lower()
        assert "broadcast" in line
        assert "all_reduce" in line
        (rank,) = job.document()["verdict"]["culprits"]
        assert rank == GUILTY


def a_rank(job: Running) -> str:
    """The PID of one rank, as it is called where the job runs."""
    for process in psutil.Process(job.launcher).children(recursive=True):
        status = Path(f"/proc/{process.pid}/status").read_text()
        if process.environ().get("RANK") == "0":
            return next(
                line.split()[-1] for line in status.splitlines() if line.startswith("NSpid")
            )
    raise AssertionError("it has no rank 0")


def test_any_process_of_the_job_leads_to_it(stopped: Running) -> None:
    of_a_rank = stopped.document(a_rank(stopped))
    assert of_a_rank["verdict"]["culprits"] == [GUILTY]


def test_what_is_kept_explains_it_again(stopped: Running, tmp_path: Path) -> None:
    bundle = tmp_path / "hang.tar.gz"
    document = stopped.document("--out", str(bundle))
    assert bundle.stat().st_size < RANKS * 1_000_000
    replay = subprocess.run(
        [sys.executable, "-m", "grpo_doctor", "attach", "--replay", str(bundle), "--json"],
        capture_output=True, text=True, check=False, timeout=_DEADLINE_S,
    )  # fmt: skip
    assert replay.returncode == 3
    assert json.loads(replay.stdout) == document


# Imported as root, because another user may not even read this environment.
_AS_NOBODY = """
import os, sys
from grpo_doctor.cli import main, attach_evidence as visit
from grpo_doctor.cli.parser import make_parser
import grpo_doctor.hang.diagnose, grpo_doctor_reports
make_parser(), grpo_doctor.__version__
os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.exit(main(["attach", sys.argv[1]]))
"""


def test_another_users_job_is_refused_with_the_remedy(stopped: Running) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root to become another user")
    done = subprocess.run(
        [*stopped.inside, sys.executable, "-c", _AS_NOBODY, a_rank(stopped)],
        capture_output=True, text=True, check=False, timeout=_DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    assert "sudo" in done.stderr
    assert done.stdout == ""


def test_ctrl_c_says_what_was_seen(stopped: Running) -> None:
    attach = subprocess.Popen(
        [*stopped.inside, sys.executable, "-m", "grpo_doctor", "attach", "--seconds", "60"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert attach.stderr is not None
    line = ""
    while "second sample in" not in line:
        line = attach.stderr.readline()
        assert line, "it ended before its second look"
    os.killpg(attach.pid, signal.SIGINT)
    output, _ = attach.communicate(timeout=_DEADLINE_S)
    assert "interrupted" in output
    assert "Rank 2" in output.splitlines()[0]


def test_the_printed_command_resumes_the_job(stopped: Running) -> None:
    """The last one: the job moves after it, and is healthy."""
    command = stopped.document()["verdict"]["confirm"][0]
    subprocess.run([*stopped.inside, "sh", "-c", command], check=True)
    start_s = time.monotonic()
    while "healthy" not in (done := stopped.attach()).stdout:
        assert done.returncode == 0, done.stdout  # slow, while others use the cores
        assert time.monotonic() - start_s < _YOUNG_S, done.stdout
