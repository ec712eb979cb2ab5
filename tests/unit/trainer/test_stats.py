"""Metrics of a step under TRL's names, and the log line."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from grpo_doctor_trainer import stats
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.console import set_up_console, sparkline
from grpo_doctor_trainer.loss import LOSS_STATISTICS
from grpo_doctor_trainer.stats import completion_metrics, loss_metrics, reward_metrics
from grpo_doctor_trainer.steplog import StepLog

FOUND = {
    "reward": 0.5, "reward_std": 0.1, "loss": 0.25, "completions/mean_length": 4.0,
    "completions/clipped_ratio": 0.5, "kl": 0.01, "clip_ratio/region_mean": 0.02,
    "learning_rate": 1e-3, "step_tokens": 100.0,
}  # fmt: skip


def test_rewards() -> None:
    scores = torch.tensor([[1.0, math.nan], [0.0, 3.0], [1.0, 1.0], [1.0, math.nan]])
    rewards = torch.tensor([1.0, 0.0, 1.0, 1.0])
    assert reward_metrics(rewards, scores, ["accuracy", "mine"], 2) == pytest.approx(
        {
            "reward": 0.75,
            "reward_std": math.sqrt(0.5) / 2,
            "frac_reward_zero_std": 0.5,
            "rewards/accuracy/mean": 0.75,
            "rewards/mine/mean": 2.0,
        }
    )


def test_lengths() -> None:
    found = completion_metrics(torch.tensor([2.0, 4.0, 8.0, 8.0]), torch.tensor([1.0, 1, 0, 0]))
    assert found == {
        "completions/mean_length": 5.5,
        "completions/min_length": 2.0,
        "completions/max_length": 8.0,
        "completions/clipped_ratio": 0.5,
    }


def test_sums_of_the_loss_become_means() -> None:
    named = {"loss": 6.0, "entropy": 20.0, "kl": 1.0, "completion_tokens": 10.0, "tokens": 30.0}
    sums = torch.tensor([named.get(name, 0.0) for name in LOSS_STATISTICS])
    assert loss_metrics(sums, micro_batches=3) == pytest.approx(
        {"loss": 2.0, "step_tokens": 30.0, "entropy": 2.0, "kl": 0.1, "clip_ratio/region_mean": 0.0}
    )


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> dict[int, dict[str, Any]]:
    """What the recorder is given."""
    found: dict[int, dict[str, Any]] = {}
    monkeypatch.setattr(stats, "metrics", found.__setitem__)
    return found


def test_steps_are_recorded_at_the_interval_and_at_both_ends(
    recorded: dict[int, dict[str, Any]],
) -> None:
    log = StepLog(TrainerConfig(logging_steps=3), 8, writes=True)
    for number in range(1, 9):
        log.write(number, FOUND, seconds=2.0)
    assert list(recorded) == [1, 3, 6, 8]
    assert recorded[3]["num_tokens"] == 300
    assert recorded[3]["tokens_per_second"] == 50
    assert recorded[3]["step_time"] == 2.0
    assert "step_tokens" not in recorded[3]
    assert "step_tokens" in FOUND


def test_only_the_writing_rank_writes(recorded: dict[int, dict[str, Any]]) -> None:
    log = StepLog(TrainerConfig(), 1, writes=False)
    log.write(1, FOUND, seconds=1.0)
    log.finish()
    assert not recorded


def test_lines_and_the_curve_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_console(0)
    log = StepLog(TrainerConfig(beta=0.1, logging_steps=1), 10, writes=True)
    for number in range(1, 11):
        log.write(number, FOUND | {"reward": number / 10}, seconds=1.0)
    log.finish()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("step  1/10 | reward 0.100 +-0.100 | loss +0.2500 | length 4.0 (50%")
    assert " | kl 0.0100 | ratio clip 2.0% | lr 1.0e-03 | 100 tok/s | 1.00 s" in lines[0]
    assert lines[-1].startswith("reward 0.100 -> 1.000  ▁")
    assert lines[-1].endswith("█")


@pytest.mark.parametrize(
    ("values", "curve"),
    [([], ""), ([1.0], "▁"), ([2.0, 2.0], "▁▁"), ([0.0, 1.0], "▁█"), ([0.0, 7.0, 3.0], "▁█▄")],
)
def test_sparkline(values: list[float], curve: str) -> None:
    assert sparkline(values) == curve


def test_a_long_curve_is_averaged_to_fit() -> None:
    assert len(sparkline([float(n) for n in range(1000)], width=60)) == 60
