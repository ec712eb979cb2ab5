"""Three ways to stand still at the start, told apart by one command that needs no preparation."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.case_studies.case_1 import COMMAND, RANKS, STANDSTILLS, Standstill
from tests.case_studies.commandline import launch
from tests.faults.attach import attach, command
from tests.faults.events import count, events_in, wait_for
from tests.faults.jobs import ROOT, environment

pytest.importorskip("torch", reason="needs torch")
pytestmark = pytest.mark.slow
START_S = 120.0
AGE_S = 20.0


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """All three jobs at once, each as far as it gets."""
    folder = tmp_path_factory.mktemp("starts")
    names = [standstill.name for standstill in STANDSTILLS]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.case_studies.startup", str(folder), *names],
        cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        for standstill in STANDSTILLS:
            _await_standstill(standstill, folder / standstill.name)
        time.sleep(AGE_S)  # how old a standstill is, is part of the case: younger ones are "slow"
        yield folder
    finally:
        for standstill in STANDSTILLS:
            _end(folder / standstill.name)
        process.kill()
        process.wait()


def _await_standstill(standstill: Standstill, folder: Path) -> None:
    present = RANKS - (standstill.name == "rendezvous")
    wait_for(folder, lambda events: count(events, "started") >= present, "start", START_S)
    if standstill.name == "images":
        wait_for(folder, lambda events: count(events, "images") >= RANKS, "images", START_S)


def _end(folder: Path) -> None:
    for event in events_in(folder):
        if event.name == "launched":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(event.pid, signal.SIGKILL)


def _victim(standstill: Standstill, folder: Path) -> str:
    """A rank of the job that is not to blame: nobody knows yet which one is."""
    ranks = next(event for event in events_in(folder) if event.name == "launched").more["ranks"]
    return str(next(pid for rank, pid in ranks.items() if int(rank) != standstill.culprit))


@pytest.mark.parametrize("standstill", STANDSTILLS, ids=lambda standstill: standstill.name)
def test_attach_tells_which_way_it_is(jobs: Path, standstill: Standstill, tmp_path: Path) -> None:
    bundle = str(tmp_path / "bundle")
    _, output, problem, _ = command(
        "attach", _victim(standstill, jobs / standstill.name), "--out", bundle
    )
    first = output.partition("\n")[0].lower() or problem
    assert all(words in first for words in standstill.says), output[:600]

    answer = attach("--replay", bundle)
    assert answer.state in standstill.states, answer
    assert answer.culprits == (standstill.culprit,), answer
    assert answer.cause in standstill.classes, answer
    assert not count(events_in(jobs / standstill.name), "first step")


def test_the_run_has_eight_ranks() -> None:
    launched = launch(COMMAND)
    assert launched.variables["NPROC_PER_NODE"] == str(RANKS)
    assert launched.flags["deepspeed"] == ("zero3_offload",)
