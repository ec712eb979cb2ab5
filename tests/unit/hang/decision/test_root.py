"""Which of several proposals explains the rest."""

from __future__ import annotations

import pytest

from tests.evidence import EvidenceBuilder, frames
from tests.verdicts import verdict

FETCH = frames("fetch_table /home/me/train.py:30", "main /home/me/train.py:9")
LOOK = frames("fetch_table /home/me/train.py:25", "main /home/me/train.py:9")


def polls(build: EvidenceBuilder, rank: int, wakes: int = 5) -> None:
    """It looks whether something is there, sleeps, and looks again."""
    process = build.elsewhere(rank, LOOK)
    process.still_s, process.wakes, process.wchan = 0.3, wakes, "hrtimer_nanosleep"
    process.blocks("sleep")


@pytest.mark.parametrize("wakes", [1, 5])
def test_ranks_that_ask_and_sleep_may_wait_for_the_one_that_is_silent(wakes: int) -> None:
    build = EvidenceBuilder()
    build.elsewhere(0, FETCH).blocks("socket-receive", "10.0.0.1:4 -> 10.0.0.9:80")
    for rank in (1, 2, 3):
        polls(build, rank, wakes)
    found = verdict(build)
    assert found.culprits == (0,)
    assert "train.py:30" in found.summary


def test_ranks_that_all_ask_are_named_together() -> None:
    build = EvidenceBuilder()
    for rank in (0, 1, 2):
        polls(build, rank)
    assert verdict(build).culprits == (0, 1, 2)
