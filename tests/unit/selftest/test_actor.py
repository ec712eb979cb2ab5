"""What the ranks of the small jobs do, and what is wrong with each."""

from __future__ import annotations

import math
import multiprocessing
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import grpo_doctor_probes as probes
from grpo_doctor.selftest import actor
from grpo_doctor.selftest.actor import STEPS, Rank, metrics


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
    assert not rank.objects


def test_litter_is_made_in_every_rollout_and_what_is_old_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actor, "_OBJECTS", 2)
    rank = rank_of("garbage", tmp_path)
    counts = []
    for step in range(1, 6):
        rank.step(step)
        counts.append(len(rank.objects))
    assert counts == [2, 2, 2, 2, 2]


@dataclass
class Noting(Rank):
    """Notes its phases, and where it litters."""

    noted: list[str] = field(default_factory=list)

    def seconds(self, phase: str) -> float:
        self.noted.append(phase)
        return 0.0

    def litter(self) -> None:
        self.noted.append("litter")


@pytest.mark.parametrize(("case", "litter"), [("garbage", ["litter"]), ("healthy", [])])
def test_litter_is_collected_in_the_rollout_only(
    case: str, litter: list[str], tmp_path: Path
) -> None:
    barrier: Any = threading.Barrier(1)
    rank = Noting(case, 0, barrier, tmp_path, random.Random(3))
    rank.step(1)
    assert rank.noted == ["dataload", "rollout", *litter, "reward", "train", "optimizer"]


@pytest.mark.parametrize("number", [0, 1])
def test_the_first_rank_logs_the_metrics_of_its_steps(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[tuple[int, dict[str, float]]] = []
    monkeypatch.setattr(probes, "metrics", lambda *arguments: logged.append(arguments))
    rank = rank_of("cut-off", tmp_path, number)
    rank.step(7)
    assert logged == ([(7, metrics("cut-off", 7))] if number == 0 else [])


ILL = {
    "no-difference": {"frac_reward_zero_std"},
    "cut-off": {"completions/clipped_ratio"},
    "collapse": {"entropy"},
    "nan-reward": {"reward", "reward_std"},
    "slow-reward": set(),
}


@pytest.mark.parametrize("case", ILL)
@pytest.mark.parametrize("step", [7, 8])
def test_of_an_ill_job_those_metrics_differ_that_are_ill(case: str, step: int) -> None:
    healthy, values = metrics("healthy", step), metrics(case, step)
    assert healthy.keys() == values.keys()
    assert not any(math.isnan(value) for value in healthy.values())
    ill = {name for name, value in healthy.items() if values[name] != value}
    assert ill == (set() if case == "nan-reward" and step == 8 else ILL[case])


def test_a_healthy_job_learns() -> None:
    first, last = metrics("healthy", 1), metrics("healthy", STEPS)
    assert last["reward"] > first["reward"] + 0.2
    assert last["entropy"] < first["entropy"] - 0.1
    assert last["kl"] > first["kl"] > 0
    means = {"reward_std": 0.25, "frac_reward_zero_std": 0.1, "grad_norm": 0.5,
              "completions/mean_length": 200}  # fmt: skip
    for step in range(1, STEPS + 1):
        values = metrics("healthy", step)
        for name, usual in means.items():
            assert values[name] == pytest.approx(usual, rel=0.9), name
        assert values["frac_reward_zero_std"] >= 0
    assert metrics("no-difference", 3)["frac_reward_zero_std"] == pytest.approx(0.8, abs=0.1)


class Ended(threading.Thread):
    """A thread with the exit code of a process."""

    exitcode = 0


class Threads:
    """A context of `multiprocessing` whose processes are threads."""

    Barrier = threading.Barrier

    def __init__(self, codes: dict[int, int]) -> None:
        self.codes = codes

    def Process(self, target: Callable[..., None], args: tuple[Any, ...]) -> threading.Thread:  # noqa: N802
        thread = Ended(target=target, args=args, name=f"rank {args[1]}")
        thread.exitcode = self.codes.get(args[1], 0)
        return thread


@pytest.mark.parametrize(
    ("codes", "code"), [({}, 0), ({0: 3}, 3), ({1: 3}, 3), ({1: -9}, 9), ({0: 2, 1: 3}, 2)]
)
def test_a_job_is_two_ranks_and_ends_as_the_first_of_them_that_failed(
    codes: dict[int, int], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, "")
    logged: list[int] = []
    events: list[tuple[str, str]] = []

    def note(event: str, *_: object) -> None:
        events.append((threading.current_thread().name, event))

    monkeypatch.setattr(multiprocessing, "get_context", lambda _: Threads(codes))
    monkeypatch.setattr(probes, "metrics", lambda step, _: logged.append(step))
    monkeypatch.setattr(probes, "describe", note)
    monkeypatch.setattr(probes, "stop", lambda: note("stop"))
    monkeypatch.setattr(actor, "STEPS", 3)
    monkeypatch.setattr(actor, "_SECONDS", {})
    assert actor.main("healthy") == code
    assert logged == [1, 2, 3]
    assert sorted(events) == [("rank 0", "stop"), ("rank 0", "trl"), ("rank 1", "stop")]
