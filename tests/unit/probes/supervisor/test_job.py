"""Ending a job that hangs: in order first, by force in the end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from grpo_doctor_probes.supervisor import job as module
from grpo_doctor_probes.supervisor.job import HUNG_CODE, Ended, Job
from grpo_doctor_probes.supervisor.launch import Launch


def started(*command: str) -> Job:
    return Job(Launch(command, dict(os.environ), False, None))


def stopped(shell: str, ready: Path, kills: list[int], *, hangs: bool = True) -> Ended:
    """Starts a job, stops it as soon as it is ready, and says how it ended."""
    job = started("sh", "-c", shell, str(ready))
    return job.wait(
        lambda: job.stop(lambda: kills.append(job.pid), hangs=hangs) if ready.exists() else None,
        every_s=0.01,
    )


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AFTER_KILL_S", 0.1)


@pytest.mark.parametrize(
    ("trap", "hangs", "kills", "ended"),
    [
        ("trap 'exit 0' TERM; ", True, 0, ("hung", HUNG_CODE, None)),
        ("trap '' TERM; ", True, 1, ("hung", HUNG_CODE, None)),  # ranks first
        ("", False, 0, ("interrupted", 0, "SIGTERM")),  # it has done its steps: no failure
    ],
)
def test_one_that_is_stopped_ends_in_order_or_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: str, kills: int,
    ended: tuple[str, int, str | None], *, hangs: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr(module, "GRACE_S", 0.1 if kills else 10.0)
    killed: list[int] = []
    shell = f"{trap}touch $0; while :; do sleep 0.01; done"
    end = stopped(shell, tmp_path / "ready", killed, hangs=hangs)
    assert ((end.state, end.code, end.signal), len(killed)) == (ended, kills)


def test_how_it_ended_is_known_where_the_ends_of_children_are_ignored() -> None:
    """As under a parent that ignores them: the job is left so, for it may count on it."""
    program = "import signal as s, sys; sys.exit(7 + (s.getsignal(s.SIGCHLD) == s.SIG_IGN))"
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        end = started(sys.executable, "-c", program).wait(lambda: None, every_s=0.01)
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert (end.state, end.code) == ("failed", 8)


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
    end = started("sh", "-c", shell).wait(lambda: None, every_s=0.01)
    assert (end.state, end.code, end.signal) == (state, code, name)


Arrival = tuple[float, int, bool]  # when, which signal, and whether the terminal sent it


class Arriving:
    """A job that sleeps, a clock of its own, and what comes to the supervisor by that clock.

    `sent` and `ticks` are what it passed on and when it was asked to look, in seconds.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *arrivals: Arrival) -> None:
        self.now_s, self._kill = 1000.0, os.kill
        self._left = [(1000.0 + at_s, number, typed) for at_s, number, typed in arrivals]
        self.sent: list[tuple[float, int]] = []
        self.ticks: list[float] = []
        self.job = started("sleep", "600")
        times = SimpleNamespace(
            monotonic=lambda: self.now_s, monotonic_ns=lambda: 0, sleep=self._sleep
        )
        monkeypatch.setattr(module, "time", times)
        monkeypatch.setattr(signal, "sigtimedwait", self._next)
        monkeypatch.setattr(os, "kill", lambda _, number: self.sent.append((self._s(), number)))

    def _s(self) -> float:
        return self.now_s - 1000.0

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def _next(self, _: object, at_most_s: float) -> SimpleNamespace | None:
        assert at_most_s == 0
        if self._left and self._left[0][0] <= self.now_s:
            _, number, typed = self._left.pop(0)
            return SimpleNamespace(si_signo=number, si_code=0x80 if typed else 0)
        if not self._left and self.job._process.returncode is None:
            self._kill(self.job.pid, signal.SIGKILL)
            self.job._process.wait()
            return SimpleNamespace(si_signo=signal.SIGCHLD, si_code=0)
        return None

    def wait(self, on_tick: Callable[[], None] = lambda: None) -> Ended:
        def tick() -> None:
            self.ticks.append(self._s())
            on_tick()

        return self.job.wait(tick, every_s=0.5)


INT, TERM, USR1 = signal.SIGINT, signal.SIGTERM, signal.SIGUSR1


@pytest.mark.parametrize(
    ("arrivals", "sent", "state"),
    [
        ([(0.0, INT, False)], [INT], "interrupted"),
        ([(0.0, INT, True)], [], "interrupted"),  # the terminal sent it to the job as well
        ([(0.0, INT, True), (1.0, INT, True)], [TERM], "interrupted"),
        ([(0.0, INT, True), (1.0, INT, True), (2.0, INT, True)], [TERM, 9], "interrupted"),
        ([(0.0, INT, True), (30.0, INT, True)], [TERM], "interrupted"),
        ([(0.0, INT, True), (30.5, INT, True)], [], "interrupted"),  # a first one again
        ([(0.0, USR1, False)], [USR1], "killed"),
        ([(0.0, signal.SIGCONT, True)], [], "killed"),
        ([(0.0, signal.SIGCHLD, False)], [], "killed"),
        ([(0.0, TERM, False), (90.0, USR1, False)], [TERM, USR1], "interrupted"),
        ([(0.0, TERM, False), (90.5, USR1, False)], [TERM, USR1], "killed"),  # it outlived that
    ],
)
def test_what_is_passed_on_and_what_counts_as_asked_to_end(
    monkeypatch: pytest.MonkeyPatch, arrivals: list[Arrival], sent: list[int], state: str
) -> None:
    arriving = Arriving(monkeypatch, *arrivals)
    end = arriving.wait()
    assert [number for _, number in arriving.sent] == sent
    assert (end.state, end.code, end.signal) == (state, 137, "SIGKILL")


def test_it_is_ending_for_half_a_minute_after_it_was_asked_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arriving = Arriving(monkeypatch, (0.0, INT, False), (31.2, USR1, False))
    ending: list[bool] = []
    arriving.wait(lambda: ending.append(arriving.job.is_ending))
    not_ending = [at_s for at_s, is_ending in zip(arriving.ticks, ending) if not is_ending]
    assert not_ending == [30.5, 31.0]


def test_a_job_that_hangs_has_its_time_to_end_and_its_launcher_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "AFTER_KILL_S", 5.0)
    arriving = Arriving(monkeypatch, (20.0, USR1, False))
    killed: list[float] = []

    def stop() -> None:
        arriving.job.stop(lambda: killed.append(arriving.now_s - 1000.0))

    assert arriving.wait(stop).state == "hung"
    assert arriving.job.is_ending
    assert killed == [10.5]
    assert arriving.sent == [(0.5, TERM), (15.5, signal.SIGKILL), (20.0, USR1)]
