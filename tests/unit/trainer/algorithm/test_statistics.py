"""What is said of a micro-batch against values counted by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from grpo_doctor_trainer.algorithm.loss import SUMS, LossTerms, RolloutGap, loss_sums
from grpo_doctor_trainer.data.experience import Experience, TokenBatch

# Prompts of 2 and 3 tokens, completions of 3, 1 and no token.
PROMPTS = torch.tensor([[0, 1, 1], [1, 1, 1], [0, 1, 1]])
MASK = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 0, 0]])
BATCH = TokenBatch(PROMPTS, PROMPTS, MASK, MASK)
EVERYWHERE = torch.ones(3, 3)


def sums_of(
    *,
    kl: torch.Tensor | None = None,
    gap: RolloutGap | None = None,
    kept: torch.Tensor | None = None,
) -> dict[str, float]:
    terms = LossTerms(
        loss=EVERYWHERE,
        kl=kl,
        clipped_low=torch.tensor([[1, 1, 0], [1, 1, 1], [1, 1, 1]]).bool(),
        clipped_high=torch.tensor([[0, 0, 1], [0, 1, 1], [1, 1, 1]]).bool(),
        gap=gap,
    )
    data = Experience(BATCH, torch.zeros(3), None, None, kept=kept)
    sums = loss_sums(torch.tensor(0.25), terms, 2 * EVERYWHERE, data)
    assert sums.dtype == torch.float32
    return dict(zip(SUMS, sums.tolist(), strict=True))


HAS_LOGPROB = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0]]).bool()
DISTANCE = torch.tensor([[0.5, 1.0, 9.0], [0.25, 9.0, 9.0], [9.0, 9.0, 9.0]])
OF_TOKENS = {
    "loss": 0.25, "micro_batches": 1, "tokens": 7 + 4, "loss_tokens": 4, "entropy": 8,
    "clipped_low": 3, "clipped_high": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ({}, {}),
        ({"kept": torch.tensor([0, 1, 1])},
         {"loss_tokens": 1, "entropy": 2, "clipped_low": 1, "clipped_high": 0}),
        ({"kl": 0.5 * EVERYWHERE}, {"kl": 2, "kl_tokens": 4}),
        ({"gap": RolloutGap(DISTANCE, 2 * DISTANCE, HAS_LOGPROB)},
         {"gap_tokens": 3, "gap": 1.75, "weight": 3.5}),
    ],
)  # fmt: skip
def test_what_is_in_the_loss_is_summed_and_nothing_else(
    given: dict[str, Any], added: dict[str, float]
) -> None:
    assert sums_of(**given) == dict.fromkeys(SUMS, 0.0) | OF_TOKENS | added
