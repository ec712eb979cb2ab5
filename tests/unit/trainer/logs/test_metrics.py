"""Metrics of a step under TRL's names, and the log line."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from grpo_doctor_trainer.algorithm.statistics import HIGHEST, LOWEST, SUMS, LossStatistics
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.logs import steplog
from grpo_doctor_trainer.logs.console import set_up_console, sparkline
from grpo_doctor_trainer.logs.metrics import completion_metrics, loss_metrics, reward_metrics
from grpo_doctor_trainer.logs.steplog import StepLog
from grpo_doctor_trainer.ranks.group import Ranks

FOUND = {
    "reward": 0.5, "reward_std": 0.1, "loss": 0.25, "completions/mean_length": 4.0,
    "completions/clipped_ratio": 0.5, "kl": 0.01, "clip_ratio/region_mean": 0.02,
    "learning_rate": 1e-3, "step_tokens": 100.0,
}  # fmt: skip
ALONE = Ranks(rank=0, world_size=1, local_rank=0, device=torch.device("cpu"), threads=1)


def test_rewards() -> None:
    scores = torch.tensor([[1.0, math.nan], [0.0, 3.0], [1.0, 1.0], [1.0, math.nan]])
    rewards = torch.tensor([1.0, 0.0, 1.0, 1.0])
    assert reward_metrics(rewards, scores, ["accuracy", "mine"], 2) == pytest.approx(
        {
            "reward": 0.75,
            "reward_std": 0.5,
            "frac_reward_zero_std": 0.5,
            "rewards/accuracy/mean": 0.75,
            "rewards/accuracy/std": 0.5,
            "rewards/mine/mean": 2.0,
            "rewards/mine/std": math.sqrt(2),
        }
    )


def test_a_function_that_applied_nowhere_has_no_metrics() -> None:
    scores = torch.tensor([[1.0, math.nan], [0.0, math.nan]])
    found = reward_metrics(torch.tensor([1.0, 0.0]), scores, ["accuracy", "mine"], 2)
    assert "rewards/accuracy/mean" in found
    assert not [name for name in found if "mine" in name]


def test_completions_without_any_reward_are_counted() -> None:
    scores = torch.tensor([[1.0], [math.nan], [0.0], [1.0]])
    assert "rewards/missing_ratio" not in reward_metrics(scores[[0, 2]][:, 0], scores, ["a"], 2)
    assert reward_metrics(scores[:, 0], scores, ["a"], 2)["rewards/missing_ratio"] == 0.25
    nothing = torch.full((4,), math.nan)
    assert reward_metrics(nothing, scores, ["a"], 2)["rewards/missing_ratio"] == 1


def test_lengths() -> None:
    found = completion_metrics(torch.tensor([2.0, 4.0, 8.0, 8.0]), torch.tensor([1.0, 1, 0, 0]))
    assert found == {
        "completions/mean_length": 5.5,
        "completions/min_length": 2.0,
        "completions/max_length": 8.0,
        "completions/mean_terminated_length": 3.0,
        "completions/min_terminated_length": 2.0,
        "completions/max_terminated_length": 4.0,
        "completions/clipped_ratio": 0.5,
    }


def test_where_every_completion_was_cut_off_the_terminated_lengths_are_zero() -> None:
    found = completion_metrics(torch.tensor([8.0, 8.0]), torch.zeros(2))
    assert found["completions/mean_terminated_length"] == 0
    assert found["completions/clipped_ratio"] == 1


def part(lowest: float, highest: float, **sums: float) -> LossStatistics:
    """One micro-batch, with the same extremes for everything."""
    return LossStatistics(
        torch.tensor([sums.get(name, 0.0) for name in SUMS]),
        torch.full((len(LOWEST),), lowest),
        torch.full((len(HIGHEST),), highest),
    )


def test_micro_batches_become_means_over_tokens_and_extremes() -> None:
    counts = {"micro_batches": 1, "loss_tokens": 5, "tokens": 15}
    parts = [
        part(0.1, 0.4, loss=1, entropy=12, clipped_low=1, **counts),
        part(0.2, 0.7, loss=2, entropy=8, clipped_high=2, **counts),
    ]
    assert loss_metrics(parts, ALONE) == pytest.approx(
        {
            "loss": 1.5,
            "step_tokens": 30.0,
            "entropy": 2.0,
            "clip_ratio/low_mean": 0.1,
            "clip_ratio/low_min": 0.1,
            "clip_ratio/high_mean": 0.2,
            "clip_ratio/high_max": 0.7,
            "clip_ratio/region_mean": 0.3,
        }
    )


def test_kl_and_the_gap_are_there_where_they_were_measured() -> None:
    sums = {"micro_batches": 1, "kl_tokens": 4, "kl": 2, "gap_tokens": 5, "gap": 1, "weight": 10}
    found = loss_metrics([part(0.5, 3.0, loss_tokens=5, **sums)], ALONE)
    assert found["kl"] == 0.5
    gap = {name: value for name, value in found.items() if name.startswith("sampling/")}
    assert gap == pytest.approx(
        {
            "sampling/sampling_logp_difference/mean": 0.2,
            "sampling/sampling_logp_difference/max": 3.0,
            "sampling/importance_sampling_ratio/min": 0.5,
            "sampling/importance_sampling_ratio/mean": 2.0,
            "sampling/importance_sampling_ratio/max": 3.0,
        }
    )


def test_a_step_without_a_token_in_the_loss_has_finite_metrics() -> None:
    found = loss_metrics([part(math.inf, -math.inf, micro_batches=1)], ALONE)
    assert all(math.isfinite(value) for value in found.values())


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> dict[int, dict[str, Any]]:
    """What the recorder is given."""
    found: dict[int, dict[str, Any]] = {}
    monkeypatch.setattr(steplog, "metrics", found.__setitem__)
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


def test_steps_without_a_reward_are_left_out_of_the_curve(
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_up_console(0)
    log = StepLog(TrainerConfig(), 3, writes=True)
    for number, reward in ((1, 0.5), (2, math.nan), (3, 1.0)):
        log.write(number, FOUND | {"reward": reward}, seconds=1.0)
    log.finish()
    assert capsys.readouterr().out.splitlines()[-1] == "reward 0.500 -> 1.000  ▁█"


@pytest.mark.parametrize(
    ("values", "curve"),
    [([], ""), ([1.0], "▁"), ([2.0, 2.0], "▁▁"), ([0.0, 1.0], "▁█"), ([0.0, 7.0, 3.0], "▁█▄")],
)
def test_sparkline(values: list[float], curve: str) -> None:
    assert sparkline(values) == curve


def test_a_long_curve_is_averaged_to_fit() -> None:
    assert len(sparkline([float(n) for n in range(1000)], width=60)) == 60
