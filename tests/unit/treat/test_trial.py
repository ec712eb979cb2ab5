"""Trials of real commands: they end after so many steps, whole, however the command behaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from grpo_doctor.errors import LaunchError
from grpo_doctor.treat import trial
from grpo_doctor.treat.trial import Limits, run_trial
from grpo_doctor_probes.procs.procstat import state_of
from grpo_doctor_reports.schema.treat import TrialEntry

pytestmark = pytest.mark.slow
STEPS = """
import os, sys, time
from grpo_doctor_probes import phase, step
for number in range(10_000):
    with step(number), phase("rollout"):
        time.sleep(0.02)
"""
STUBBORN = f"""
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
ignores = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", ignores], start_new_session=True)
open(sys.argv[1], "w").write(f"{{os.getpid()}} {{child.pid}}")
{STEPS}
"""


def tried(tmp_path: Path, code: str, *more: str, seconds: float = 60.0) -> TrialEntry:
    folder = tmp_path / "00-survey"
    entry = TrialEntry(side="survey", folder=str(folder))
    return run_trial(entry, [sys.executable, "-c", code, *more], Limits(8, seconds))


def test_a_job_without_an_end_is_measured_and_ended(tmp_path: Path) -> None:
    found = tried(tmp_path, STEPS)
    assert found.state == "measured", found.why
    assert len(found.steps) == len(found.seconds) >= 8
    assert found.steps[0] == 0
    assert all(0.015 < (seconds or 0) < 5 for seconds in found.seconds)
    assert (Path(found.folder) / "job.log").exists()


def test_nothing_is_left_of_a_job_that_ignores_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "_GRACE_S", 0.2)
    pids = tmp_path / "pids"
    found = tried(tmp_path, STUBBORN, str(pids))
    assert found.state == "measured", found.why
    for pid in map(int, pids.read_text().split()):
        assert state_of(f"/proc/{pid}") in ("", "Z")


@pytest.mark.parametrize(
    ("code", "state", "says"),
    [
        ("print('done')", "no steps", "0 complete steps"),
        ("raise SystemExit('no such file')", "failed", "before its first step: no such file"),
        ("input('sure? ')", "failed", "it needs a terminal"),
        ("raise RuntimeError('CUDA out of memory. Tried')", "out of memory", "Tried"),
        ("import os; os.kill(os.getpid(), 9)", "failed", "exit code 137"),
        (STEPS.replace("10_000", "6") + "raise SystemExit(3)", "failed", "after 6 steps"),
        (STEPS.replace("10_000", "3"), "no steps", "3 complete steps"),
    ],
)
def test_what_becomes_of_other_commands(code: str, state: str, says: str, tmp_path: Path) -> None:
    found = tried(tmp_path, code)
    assert (found.state, says in found.why) == (state, True), found


def test_a_command_that_never_logs_a_step_is_ended_at_its_limit(tmp_path: Path) -> None:
    began = time.monotonic()
    found = tried(tmp_path, "import time; time.sleep(600)", seconds=2.0)
    assert found.state == "no steps"
    assert time.monotonic() - began < 60


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    entry = TrialEntry(folder=str(tmp_path / "x"))
    with pytest.raises(LaunchError, match="no such command"):
        run_trial(entry, ["no-such-command"], Limits(8, 5.0))


def test_ctrl_c_ends_the_trial_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "_GRACE_S", 0.2)
    monkeypatch.setattr(trial, "_INTERRUPT_S", 2.0)
    pids = tmp_path / "pids"

    def interrupt() -> None:
        while not (pids.exists() and pids.read_text()):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    endless = STUBBORN.replace("10_000", "10**9").replace("SIGTERM", "SIGINT")
    with pytest.raises(KeyboardInterrupt):
        tried(tmp_path, endless, str(pids))
    for pid in map(int, pids.read_text().split()):
        assert state_of(f"/proc/{pid}") in ("", "Z")


def test_a_job_whose_supervisor_had_to_be_killed_is_ended_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the supervisor does not end a stubborn job in time."""
    monkeypatch.setattr(trial, "_GRACE_S", 0.2)
    monkeypatch.setattr(trial, "_INTERRUPT_S", 0.0)
    monkeypatch.setattr(trial, "_MORE_S", 0.0)
    pids = tmp_path / "pids"
    endless = STUBBORN.replace("10_000", "10**9").replace("SIGTERM", "SIGINT")
    waited = subprocess.Popen.wait

    def wait(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        while not (pids.exists() and pids.read_text()):
            time.sleep(0.05)
        return waited(process, None if timeout is None else 0.0)

    monkeypatch.setattr(subprocess.Popen, "wait", wait)
    assert tried(tmp_path, endless, str(pids)).state == "failed"
    for pid in map(int, pids.read_text().split()):
        assert state_of(f"/proc/{pid}") in ("", "Z")
