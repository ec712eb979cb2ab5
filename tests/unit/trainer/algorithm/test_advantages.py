"""Group-relative advantages against values computed by hand."""

from __future__ import annotations

import math

import pytest
import torch

from grpo_doctor_trainer.algorithm.loss import deviation, group_advantages, groups_without_signal

REWARDS = torch.tensor([1.0, 0.0, 0.0, 3.0, 5.0, 7.0], dtype=torch.float64)
# Group means 1/3 and 5; sample deviations sqrt(1/3) and 2.
CENTERED = [2 / 3, -1 / 3, -1 / 3, -2.0, 0.0, 2.0]


def test_none_only_subtracts_the_mean_of_the_group() -> None:
    assert group_advantages(REWARDS, 3, "none").tolist() == pytest.approx(CENTERED, abs=1e-12)


def test_group_divides_by_the_deviation_in_the_group() -> None:
    deviations = [math.sqrt(1 / 3)] * 3 + [2.0] * 3
    expected = [c / (d + 1e-4) for c, d in zip(CENTERED, deviations, strict=True)]
    assert group_advantages(REWARDS, 3, "group").tolist() == pytest.approx(expected, abs=1e-12)


def test_batch_divides_by_the_deviation_over_all_rewards() -> None:
    mean = 16 / 6
    deviation = math.sqrt(sum((r - mean) ** 2 for r in REWARDS.tolist()) / 5)
    expected = [c / (deviation + 1e-4) for c in CENTERED]
    assert group_advantages(REWARDS, 3, "batch").tolist() == pytest.approx(expected, abs=1e-12)


def test_share_of_groups_without_signal() -> None:
    assert groups_without_signal(torch.tensor([1.0, 1, 0, 1, 0, 0, 1, 0]), 2) == 0.5


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_a_completion_without_a_reward_is_as_if_it_were_not_there(scale: str) -> None:
    with_gap = torch.tensor([1.0, math.nan, 0.0, 3.0, 5.0, 7.0], dtype=torch.float64)
    advantages = group_advantages(with_gap, 3, scale)
    assert advantages[1] == 0
    deviations = {
        "group": [math.sqrt(0.5)] * 2 + [2.0] * 3,
        "batch": [float(torch.tensor([1.0, 0, 3, 5, 7], dtype=torch.float64).std())] * 5,
    }
    centered = [0.5, -0.5, -2.0, 0.0, 2.0]
    divisors = [d + 1e-4 for d in deviations[scale]] if scale != "none" else [1.0] * 5
    expected = [c / d for c, d in zip(centered, divisors, strict=True)]
    assert advantages[[0, 2, 3, 4, 5]].tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("scale", ["group", "none"])
def test_a_group_with_one_reward_or_none_teaches_nothing(scale: str) -> None:
    rewards = torch.tensor([math.nan, 2.0, math.nan, math.nan])
    assert group_advantages(rewards, 2, scale).tolist() == [0, 0, 0, 0]
    assert groups_without_signal(rewards, 2) == 1


def test_deviation_leaves_out_what_is_missing() -> None:
    assert float(deviation(torch.tensor([1.0, math.nan, 3.0]))) == pytest.approx(math.sqrt(2))
    assert math.isnan(float(deviation(torch.tensor([1.0, math.nan]))))
