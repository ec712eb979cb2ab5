"""The job's processes of a /proc made of files: who is watched as what, and who is ended."""

from __future__ import annotations

import os
import shutil
import signal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from grpo_doctor_probes.discover.scan import read_process
from grpo_doctor_probes.samplers.jobtree import JobTree
from grpo_doctor_probes.supervisor import members as module
from grpo_doctor_probes.supervisor.deaths import DeathWatch, Subject
from grpo_doctor_probes.supervisor.members import SCAN_PERIOD_NS, Members, role_of
from tests.unit.probes.discover.fakeproc import FakeProc, rank_environment

LAUNCHER, FIRST, SECOND, ENGINE = 10, 20, 30, 21


class Watch:
    """Who was to be watched, in order."""

    def __init__(self) -> None:
        self.subjects: list[Subject] = []
        self.checks = 0

    def watch(self, subject: Subject) -> None:
        self.subjects.append(subject)

    def watches(self, pid: int) -> bool:
        return any(subject.pid == pid for subject in self.subjects)

    def check(self) -> None:
        self.checks += 1

    def roles(self) -> dict[int, str]:
        return {subject.pid: subject.role for subject in self.subjects}


class Host(FakeProc):
    """A launcher with two ranks, and what the supervisor of that job knows."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder / "proc")
        monkeypatch.setattr(module, "JobTree", partial(JobTree, proc=self.root))
        monkeypatch.setattr(module, "read_process", lambda _, pid: read_process(self.root, pid))
        self.add(LAUNCHER, 1, "torchrun train.py")
        for rank, pid in enumerate((FIRST, SECOND)):
            self.add(pid, LAUNCHER, "python train.py", rank_environment(rank, 2))
        self.watch = Watch()
        self.members = Members(LAUNCHER, folder, cast(DeathWatch, self.watch))
        self._now_ns = 1000 * SCAN_PERIOD_NS

    def scan(self, after_ns: int = SCAN_PERIOD_NS) -> dict[int, int]:
        """The ranks by process, a period later."""
        self._now_ns += after_ns
        self.members.refresh(self._now_ns)
        return self.members.ranks

    def ends(self, pid: int, *, collected: bool = True) -> None:
        if collected:
            shutil.rmtree(self.root / str(pid))
        else:
            stat = self.root / str(pid) / "stat"
            stat.write_text(stat.read_text().replace(") S ", ") Z "))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


def test_processes_are_looked_for_once_a_second(host: Host) -> None:
    host.scan(0)
    host.add(40, LAUNCHER, "python train.py", rank_environment(2, 3))
    assert host.scan(SCAN_PERIOD_NS - 1) == {FIRST: 0, SECOND: 1}
    assert host.watch.checks == 1
    assert host.scan(1) == {FIRST: 0, SECOND: 1, 40: 2}
    assert host.watch.checks == 2


@pytest.mark.parametrize("collected", [True, False])
def test_a_helper_with_its_ranks_environment_does_not_pass_for_it(
    host: Host, *, collected: bool
) -> None:
    host.add(ENGINE, FIRST, ["VLLM::EngineCore"], rank_environment(0, 2))
    assert host.scan() == {FIRST: 0, SECOND: 1}
    host.ends(FIRST, collected=collected)
    for _ in range(3):
        assert host.scan() == {SECOND: 1}
    assert host.watch.roles()[ENGINE] == "the rollout engine of rank 0"
    assert sorted(host.members.pids) == [ENGINE, SECOND]
    host.ends(ENGINE)
    assert host.scan() == {SECOND: 1}


class Ending:
    """Signals end processes after some looks, SIGKILL at once; no time passes but in sleeps."""

    def __init__(
        self, host: Host, monkeypatch: pytest.MonkeyPatch, *, obeys_after_s: float
    ) -> None:
        self.sent: list[tuple[float, int, int]] = []
        self._host, self._now_s, self._obeys_after_s = host, 100.0, obeys_after_s
        times = SimpleNamespace(monotonic=lambda: self._now_s, sleep=self._sleep)
        monkeypatch.setattr(module, "time", times)
        monkeypatch.setattr(os, "kill", self._kill)

    def _sleep(self, seconds: float) -> None:
        self._now_s = round(self._now_s + seconds, 6)
        if self._now_s - 100.0 >= self._obeys_after_s:
            for pid in self._host.members.pids:
                self._host.ends(pid, collected=False)

    def _kill(self, pid: int, number: int) -> None:
        if pid == SECOND and number == signal.SIGTERM:
            raise ProcessLookupError
        self.sent.append((self._now_s - 100.0, pid, number))
        if number == signal.SIGKILL:
            self._host.ends(pid, collected=False)


@pytest.mark.parametrize(
    ("obeys_after_s", "grace_s", "killed_s"), [(1.0, 5.0, None), (99.0, 0.5, 0.5)]
)
def test_what_a_launcher_left_is_asked_to_end_and_killed_in_the_end(
    host: Host, monkeypatch: pytest.MonkeyPatch, obeys_after_s: float, grace_s: float,
    killed_s: float | None,
) -> None:  # fmt: skip
    host.scan()
    ending = Ending(host, monkeypatch, obeys_after_s=obeys_after_s)
    host.members.end(grace_s)
    killed = (
        [] if killed_s is None else [(killed_s, pid, signal.SIGKILL) for pid in (FIRST, SECOND)]
    )
    assert ending.sent == [(0.0, FIRST, signal.SIGTERM), *killed]
    assert ending._now_s == 100.0 + (killed_s or obeys_after_s)


def test_killing_leaves_the_launcher_to_tell_how_it_ended(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.add(ENGINE, FIRST, ["VLLM::EngineCore"])
    host.scan()
    ending = Ending(host, monkeypatch, obeys_after_s=99.0)
    host.members.kill()
    assert {pid for _, pid, _ in ending.sent} == {FIRST, SECOND, ENGINE}
    assert {number for _, _, number in ending.sent} == {signal.SIGKILL}


@pytest.mark.parametrize(
    ("command", "words", "serves"),
    [
        ("VLLM::EngineCore", "the rollout engine", True),
        ("VLLM::Worker_TP0", "a rollout worker", True),
        ("sglang::detokenizer", "a helper of the rollout engine", True),
        ("sglang::scheduler", "the rollout engine", True),
        ("/usr/bin/python -m vllm.entrypoints.openai.api_server", "the rollout server", True),
        ("/opt/bin/python /opt/bin/trl vllm-serve --model x", "the rollout server", True),
        ("/usr/bin/python -c grpo_doctor_trainer.rewards.worker", "a reward process", True),
        ("/usr/bin/gcc -O2 x.c", "a helper (gcc)", False),
        ("/usr/bin/python -c multiprocessing.resource_tracker", "a helper (python)", False),
        ("", "a helper", False),
    ],
)
def test_roles(command: str, words: str, serves: bool) -> None:
    assert role_of("", tuple(command.split())) == (words, serves)
