"""Signals reach the job while a look at it hangs."""

from __future__ import annotations

import contextlib
import signal
import sys
from pathlib import Path

import pytest

from tests.integration.test_run import wait_for
from tests.integration.test_watchdog import (
    PATIENCE_S,
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
