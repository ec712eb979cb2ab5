"""What `run` does beside looking: `--on-hang dump`, and signals while a look hangs."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

from grpo_doctor.hang.collection import bundle
from tests.integration.test_run import alive, wait_for
from tests.integration.test_watchdog import (
    JOB,
    PATIENCE_S,
    rank_pids,
    read_until,
    run_facts,
    started,
)

pytestmark = pytest.mark.slow
HANGS_READERS = """
import os, sys, time
folder = os.path.join(os.environ["GRPO_DOCTOR_RUN_DIR"], "ranks")
os.makedirs(folder, exist_ok=True)
os.mkfifo(os.path.join(folder, "00007.spans"))
time.sleep(600)
"""


def waits(pid: int, where: str) -> bool:
    """Whether a thread of the process waits there in the kernel."""
    for path in Path(f"/proc/{pid}/task").glob("*/wchan"):
        with contextlib.suppress(OSError):  # threads end
            if where in path.read_text():
                return True
    return False


def test_signals_reach_a_job_whose_run_directory_hangs(tmp_path: Path) -> None:
    """A FIFO where a span file should be: whoever opens it waits for ever, as on a dead mount."""
    with started(tmp_path, job=[sys.executable, "-c", HANGS_READERS]) as process:
        wait_for(lambda: waits(process.pid, "wait_for_partner"))
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=PATIENCE_S)
    assert run_facts(tmp_path)["end"]["state"] == "interrupted"
    assert "the watchdog hung" in stderr


@pytest.mark.faults
def test_dump_keeps_the_evidence_again_after_a_minute(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the trainer extra")
    job = [sys.executable, str(JOB), str(tmp_path)]
    with started(tmp_path, "--hang-after", "4", "--on-hang", "dump", job=job) as process:
        assert "Rank 1 is stopped" in read_until(process, "attach --replay")
        pids = rank_pids(tmp_path)
        assert "Rank 1 is stopped" in read_until(process, "a minute later:")
        assert all(alive(pid) for pid in pids)  # it is kept, and let be
        second = bundle.read(tmp_path / "run/hangs/0-again")
        os.kill(pids[1], signal.SIGCONT)
        read_until(process, "the job moves again")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
    (hang,) = run_facts(tmp_path)["hangs"]
    first = bundle.read(Path(hang["bundle"]))
    assert second.taken_unix_ns - first.taken_unix_ns > 60e9
