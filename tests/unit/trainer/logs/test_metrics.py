"""Metrics of a step under TRL's names, and the log line."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from grpo_doctor_trainer import steplog
from grpo_doctor_trainer.algorithm.loss import SUMS
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.console import set_up_console
from grpo_doctor_trainer.ranks import Ranks
from grpo_doctor_trainer.steplog import StepLog, completion_metrics, loss_metrics, reward_metrics

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
    values = reward_metrics(torch.tensor([1.0, 0.0]), scores, ["accuracy", "mine"], 2)
    assert "rewards/accuracy/mean" in values
    assert not [name for name in values if "mine" in name]


def test_completions_without_any_reward_are_counted() -> None:
    scores = torch.tensor([[1.0], [math.nan], [0.0], [1.0]])
    assert "rewards/missing_ratio" not in reward_metrics(scores[[0, 2]][:, 0], scores, ["a"], 2)
    assert reward_metrics(scores[:, 0], scores, ["a"], 2)["rewards/missing_ratio"] == 0.25
    nothing = torch.full((4,), math.nan)
    assert reward_metrics(nothing, scores, ["a"], 2)["rewards/missing_ratio"] == 1


def test_lengths() -> None:
    values = completion_metrics(torch.tensor([2.0, 4.0, 8.0, 8.0]), torch.tensor([1.0, 1, 0, 0]))
    assert values == {
        "completions/mean_length": 5.5,
        "completions/min_length": 2.0,
        "completions/max_length": 8.0,
        "completions/mean_terminated_length": 3.0,
        "completions/min_terminated_length": 2.0,
        "completions/max_terminated_length": 4.0,
        "completions/clipped_ratio": 0.5,
    }


def test_where_every_completion_was_cut_off_the_terminated_lengths_are_zero() -> None:
    values = completion_metrics(torch.tensor([8.0, 8.0]), torch.zeros(2))
    assert values["completions/mean_terminated_length"] == 0
    assert values["completions/clipped_ratio"] == 1


def part(**sums: float) -> torch.Tensor:
    return torch.tensor([sums.get(name, 0.0) for name in SUMS])


def test_micro_batches_become_means_over_tokens() -> None:
    counts = {"micro_batches": 1, "loss_tokens": 5, "tokens": 15}
    parts = [
        part(loss=1, entropy=12, clipped_low=1, **counts),
        part(loss=2, entropy=8, clipped_high=2, **counts),
    ]
    means = {
        "loss": 1.5, "step_tokens": 30.0, "entropy": 2.0, "clip_ratio/low_mean": 0.1,
        "clip_ratio/high_mean": 0.2, "clip_ratio/region_mean": 0.3,
    }  # fmt: skip
    assert loss_metrics(parts, ALONE) == pytest.approx(means)
    compared = {"kl_tokens": 4, "kl": 2, "gap_tokens": 5, "gap": 1, "weight": 10}
    assert loss_metrics([*parts, part(**compared)], ALONE) == pytest.approx(
        means
        | {
            "kl": 0.5,
            "sampling/sampling_logp_difference/mean": 0.2,
            "sampling/importance_sampling_ratio/mean": 2.0,
        }
    )


def test_a_step_without_a_token_in_the_loss_has_finite_metrics() -> None:
    assert all(map(math.isfinite, loss_metrics([part(micro_batches=1)], ALONE).values()))


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> dict[int, dict[str, Any]]:
    """What the recorder is given."""
    by_step: dict[int, dict[str, Any]] = {}
    monkeypatch.setattr(steplog, "metrics", by_step.__setitem__)
    return by_step


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
    assert lines[-1] == "reward 0.100 -> 1.000"


def test_steps_without_a_reward_are_left_out_of_the_curve(
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_up_console(0)
    log = StepLog(TrainerConfig(), 3, writes=True)
    for number, reward in ((1, 0.5), (2, math.nan), (3, 1.0)):
        log.write(number, FOUND | {"reward": reward}, seconds=1.0)
    log.finish()
    assert capsys.readouterr().out.splitlines()[-1] == "reward 0.500 -> 1.000"


def test_the_curve_begins_and_ends_with_means_of_a_tenth(
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_up_console(0)
    log = StepLog(TrainerConfig(logging_steps=99), 20, writes=True)
    for number in range(1, 21):
        log.write(number, FOUND | {"reward": float(number)}, seconds=1.0)
    log.finish()
    assert capsys.readouterr().out.splitlines()[-1] == "reward 1.500 -> 19.500"


def test_a_log_goes_on_where_a_checkpoint_ends(recorded: dict[int, dict[str, Any]]) -> None:
    before = StepLog(TrainerConfig(), 9, writes=False)
    assert before.state() == {"tokens": 0.0, "rewards": []}
    for number in (1, 2, 3):
        before.write(number, FOUND, seconds=1.0)
    saved = before.state()
    assert saved == {"tokens": 300.0, "rewards": [0.5] * 3}
    after = StepLog(TrainerConfig(logging_steps=5), 9, writes=True, saved=saved)
    assert after.state() == saved
    for number in range(4, 10):
        after.write(number, FOUND, seconds=1.0)
    assert list(recorded) == [4, 5, 9]
    assert recorded[4]["num_tokens"] == 400
