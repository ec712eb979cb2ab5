"""Ending a job that hangs: in order first, by force in the end."""

from __future__ import annotations

import os
import signal
import sys
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


@pytest.mark.parametrize(("asked_for_s", "ending"), [(30.0, True), (-1.0, False)])
def test_one_that_was_asked_to_end_is_ending_until_it_has_outlived_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked_for_s: float, ending: bool
) -> None:
    monkeypatch.setattr(module, "ASKED_FOR_S", asked_for_s)
    shell = "trap 'touch $0.asked' INT; touch $0; while :; do sleep 0.01; done"
    job = Job(Launch(("sh", "-c", shell, str(tmp_path / "ready")), dict(os.environ), False, None))
    seen: list[bool] = []

    def look() -> None:
        if not (tmp_path / "ready").exists():
            return
        if not seen:
            seen.append(job.is_ending)
            # This thread blocks it; others, of whatever ran before in this process, may not.
            signal.raise_signal(signal.SIGINT)
        elif len(seen) == 1 and (tmp_path / "ready.asked").exists():
            seen.append(job.is_ending)
            os.kill(job.pid, signal.SIGKILL)

    ended = job.wait(look, every_s=0.01)
    assert seen == [False, ending]
    state = "interrupted" if ending else "killed"
    assert (ended.state, ended.code, ended.signal) == (state, 137, "SIGKILL")


def test_how_it_ended_is_known_where_the_ends_of_children_are_ignored() -> None:
    """As under a parent that ignores them: the job is left so, for it may count on it."""
    program = "import signal as s, sys; sys.exit(7 + (s.getsignal(s.SIGCHLD) == s.SIG_IGN))"
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        job = Job(Launch((sys.executable, "-c", program), dict(os.environ), False, None))
        ended = job.wait(lambda: None, every_s=0.01)
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert (ended.state, ended.code) == ("failed", 8)


def test_one_that_is_stopped_is_ending(tmp_path: Path) -> None:
    job = Job(Launch(("sleep", "600"), dict(os.environ), False, None))
    job.stop(lambda: None)
    assert job.is_ending
    assert job.wait(lambda: None, every_s=0.01).state == "hung"


@pytest.mark.parametrize(
    ("shell", "state", "code", "name"),
    [
        ("exit 0", "finished", 0, None),
        ("exit 5", "failed", 5, None),
        ("kill -KILL $$", "killed", 137, "SIGKILL"),
        ("kill -TERM $$", "killed", 143, "SIGTERM"),
    ],
)
def test_how_a_job_that_nobody_asked_ended(
    shell: str, state: str, code: int, name: str | None
) -> None:
    job = Job(Launch(("sh", "-c", shell), dict(os.environ), False, None))
    ended = job.wait(lambda: None, every_s=0.01)
    assert (ended.state, ended.code, ended.signal) == (state, code, name)
