"""`grpo-doctor attach` on jobs all of whose ranks poll: stuck in the end, or healthy throughout."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.apart import Apart, apart

SCRIPT = Path(__file__).with_name("polling_job.py")
RANKS, LOOKS = 2, 5
pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(600)]


@contextmanager
def job(case: str, folder: Path) -> Iterator[Apart]:
    launch = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={RANKS}"]
    command = [*launch, "--standalone", str(SCRIPT), case, str(folder)]
    with apart(command, folder, RANKS, {"OMP_NUM_THREADS": "1"}) as training:
        yield training


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("marker", "wait_for_marker (path /never/weights.done)"),
        ("buffer", "which no other Python thread of the process can fill"),
    ],
)
def test_ranks_that_all_ask_in_vain_are_stuck(case: str, words: str, tmp_path: Path) -> None:
    with job(case, tmp_path) as training:
        first = training.document(lambda _: True)["verdict"]
        assert first["state"] == "slow", first["summary"]
        verdict = training.document()["verdict"]
    assert (verdict["state"], verdict["culprits"]) == ("stuck", [0, 1]), verdict["summary"]
    assert words in verdict["summary"]


@pytest.mark.parametrize("case", ["healthy", "steps"])
def test_a_job_that_polls_or_sleeps_in_each_step_is_healthy(case: str, tmp_path: Path) -> None:
    """50 steps a second, a sleep in each: no recorder stands still long enough to be read."""
    with job(case, tmp_path) as training:
        for _ in range(LOOKS):
            verdict = training.document(lambda _: True)["verdict"]
            assert verdict["state"] == "healthy", verdict["summary"]
