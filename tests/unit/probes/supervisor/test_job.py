"""Ending a job that hangs: in order first, by force in the end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from grpo_doctor_probes.supervisor import job as module
from grpo_doctor_probes.supervisor.job import HUNG_CODE, Ended, Job
from grpo_doctor_probes.supervisor.launch import Launch


def stopped(shell: str, ready: Path, kills: list[int]) -> Ended:
    """Starts a job, stops it as soon as it is ready, and says how it ended."""
    launch = Launch(("sh", "-c", shell, str(ready)), dict(os.environ), False, None)
    job = Job(launch)
    return job.wait(
        lambda: job.stop(lambda: kills.append(job.pid)) if ready.exists() else None, every_s=0.01
    )


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AFTER_KILL_S", 0.1)


def test_one_that_ends_in_order_is_not_killed(tmp_path: Path) -> None:
    kills: list[int] = []
    shell = "trap 'exit 0' TERM; touch $0; while :; do sleep 0.01; done"
    ended = stopped(shell, tmp_path / "ready", kills)
    assert (ended.state, ended.code, ended.signal) == ("hung", HUNG_CODE, None)
    assert kills == []


def test_one_that_does_not_is_killed_ranks_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GRACE_S", 0.1)
    kills: list[int] = []
    shell = "trap '' TERM; touch $0; while :; do sleep 0.01; done"
    ended = stopped(shell, tmp_path / "ready", kills)
    assert (ended.state, ended.code) == ("hung", HUNG_CODE)
    assert len(kills) == 1
