"""What the ranks of the small jobs do, and what is wrong with each."""

from __future__ import annotations

import multiprocessing
import random
from pathlib import Path

import pytest

from grpo_doctor.selftest import actor
from grpo_doctor.selftest.actor import Rank


def rank_of(case: str, folder: Path, number: int = 0) -> Rank:
    barrier = multiprocessing.get_context("spawn").Barrier(1)
    return Rank(case, number, barrier, folder, random.Random(3))


@pytest.mark.parametrize(
    ("case", "number", "slow"),
    [
        ("healthy", 1, ""),
        ("slow-reward", 0, "reward"),
        ("slow-loader", 0, "dataload"),
        ("straggler", 1, "train"),
        ("straggler", 0, ""),
    ],
)
def test_one_phase_takes_50_ms_more(tmp_path: Path, case: str, number: int, slow: str) -> None:
    rank = rank_of(case, tmp_path, number)
    for phase in ("dataload", "rollout", "reward", "train", "optimizer"):
        assert (rank.seconds(phase) >= 0.05) == (phase == slow), phase


@pytest.mark.parametrize(("case", "files"), [("checkpoints", 1), ("healthy", 0)])
def test_ranks_meet_once_a_step_and_only_some_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, files: int
) -> None:
    monkeypatch.setattr(actor, "_OBJECTS", 2)
    rank = rank_of(case, tmp_path)
    rank.step(1)
    rank.step(2)
    assert rank.meetings == 2
    assert len(list(tmp_path.iterdir())) == files
    assert not rank.kept


def test_litter_is_made_in_every_rollout_and_what_is_old_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actor, "_OBJECTS", 2)
    rank = rank_of("garbage", tmp_path)
    kept = []
    for step in range(1, 6):
        rank.step(step)
        kept.append(len(rank.kept))
    assert kept == [2, 2, 2, 2, 2]
