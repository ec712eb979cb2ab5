"""What is said of a micro-batch against values counted by hand."""

from __future__ import annotations

import math

import pytest
import torch

from grpo_doctor_trainer.algorithm.loss import (
    HIGHEST,
    LOWEST,
    SUMS,
    LossStatistics,
    LossTerms,
    RolloutGap,
    loss_statistics,
)
from grpo_doctor_trainer.data.experience import Experience, TokenBatch
from grpo_doctor_trainer.ranks import Ranks

# Prompts of 2 and 3 tokens, completions of 3, 1 and no token.
PROMPTS = torch.tensor([[0, 1, 1], [1, 1, 1], [0, 1, 1]])
MASK = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 0, 0]])
BATCH = TokenBatch(PROMPTS, PROMPTS, MASK, MASK)
EVERYWHERE = torch.ones(3, 3)


def looked_at(
    *,
    kl: torch.Tensor | None = None,
    gap: RolloutGap | None = None,
    kept: torch.Tensor | None = None,
) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """Sums, lowest and highest by name."""
    terms = LossTerms(
        loss=EVERYWHERE,
        kl=kl,
        clipped_low=torch.tensor([[1, 1, 0], [1, 1, 1], [1, 1, 1]]).bool(),
        clipped_high=torch.tensor([[0, 0, 1], [0, 1, 1], [1, 1, 1]]).bool(),
        gap=gap,
    )
    data = Experience(BATCH, torch.zeros(3), None, None, kept=kept)
    statistics = loss_statistics(torch.tensor(0.25), terms, 2 * EVERYWHERE, data)
    parts = ((SUMS, statistics.sums), (LOWEST, statistics.lowest), (HIGHEST, statistics.highest))
    sums, lowest, highest = (
        dict(zip(names, values.tolist(), strict=True)) for names, values in parts
    )
    return sums, lowest, highest


def test_tokens_in_the_loss_are_summed_and_no_others() -> None:
    sums, _, _ = looked_at()
    assert sums == {
        **dict.fromkeys(SUMS, 0.0),
        "loss": 0.25,
        "micro_batches": 1,
        "tokens": 7 + 4,
        "loss_tokens": 4,
        "entropy": 8,
        "clipped_low": 3,
        "clipped_high": 1,
    }


def test_completions_without_a_token_in_the_loss_have_no_share_of_clipped_ones() -> None:
    _, lowest, highest = looked_at()
    assert lowest["clipped_low"] == pytest.approx(2 / 3)
    assert highest["clipped_high"] == pytest.approx(1 / 3)
    sums, lowest, highest = looked_at(kept=torch.tensor([0, 1, 1]))
    assert (sums["tokens"], sums["loss_tokens"]) == (7 + 4, 1)
    assert (lowest["clipped_low"], highest["clipped_high"]) == (1, 0)


def test_of_what_was_not_looked_at_the_extremes_are_infinite() -> None:
    _, lowest, highest = looked_at()
    assert lowest["weight"] == math.inf
    assert highest["weight"] == highest["gap"] == -math.inf
    _, lowest, highest = looked_at(kept=torch.zeros(3))
    assert (lowest["clipped_low"], highest["clipped_high"]) == (math.inf, -math.inf)


def test_the_distance_to_the_reference_is_summed_where_there_is_one() -> None:
    sums, _, _ = looked_at(kl=0.5 * EVERYWHERE)
    assert (sums["kl"], sums["kl_tokens"], sums["gap_tokens"]) == (2, 4, 0)


def test_the_gap_is_summed_where_the_engine_gave_log_probs() -> None:
    has_logprob = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0]]).bool()
    distance = torch.tensor([[0.5, 1.0, 9.0], [0.25, 9.0, 9.0], [9.0, 9.0, 9.0]])
    sums, lowest, highest = looked_at(gap=RolloutGap(distance, 2 * distance, has_logprob))
    assert (sums["gap_tokens"], sums["gap"], sums["weight"]) == (3, 1.75, 3.5)
    assert lowest["weight"] == 0.5
    assert (highest["gap"], highest["weight"]) == (1.0, 2.0)
    assert sums["kl_tokens"] == 0


def test_several_are_added_up_and_keep_their_extremes() -> None:
    parts = [
        LossStatistics(
            torch.full((len(SUMS),), value),
            torch.full((len(LOWEST),), value),
            torch.full((len(HIGHEST),), value),
        )
        for value in (1.0, 3.0)
    ]
    alone = Ranks(rank=0, world_size=1, local_rank=0, device=torch.device("cpu"), threads=1)
    joined = LossStatistics.joined(parts)
    for statistics in (joined, joined.over(alone)):
        assert statistics.sums.tolist() == [4.0] * len(SUMS)
        assert statistics.lowest.tolist() == [1.0] * len(LOWEST)
        assert statistics.highest.tolist() == [3.0] * len(HIGHEST)
