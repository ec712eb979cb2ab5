"""The GRPO loss: value and gradients against a loop written out from the papers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.experience import Experience, TokenBatch
from grpo_doctor_trainer.logprobs import logprobs_in_parts
from grpo_doctor_trainer.loss import LOSS_STATISTICS, grpo_loss, reduce_loss, token_loss
from grpo_doctor_trainer.model.tiny import tiny_model, tiny_tokenizer

LOW, HIGH = 0.2, 0.3
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]])
NO_TOKENS = TokenBatch(MASK, MASK, MASK, MASK)
KINDS = ["grpo", "bnpo", "dr_grpo"]


def numbers(seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return -2 * torch.rand(3, 4, dtype=torch.float64, generator=generator)


def experience(*, old: bool = True, reference: bool = False) -> Experience:
    advantages = torch.tensor([1.5, -0.7, 0.2], dtype=torch.float64)
    return Experience(
        NO_TOKENS, advantages, numbers(2) if old else None, numbers(3) if reference else None
    )


def ours(logprobs: torch.Tensor, data: Experience, beta: float, kind: str) -> torch.Tensor:
    terms = token_loss(logprobs, data, low=LOW, high=HIGH, beta=beta)
    return reduce_loss(terms.loss, MASK, kind, longest=6)


def naive(logprobs: torch.Tensor, data: Experience, beta: float, kind: str) -> torch.Tensor:
    """One token after the other, scalars only."""
    sums, lengths = [], []
    for row in range(3):
        total = torch.zeros((), dtype=torch.float64)
        length = int(MASK[row].sum())
        for place in range(length):
            now = logprobs[row, place]
            before = now.detach() if data.old_logprobs is None else data.old_logprobs[row, place]
            gain = data.advantages[row]
            ratio = torch.exp(now - before)
            kept = min(max(ratio.item(), 1 - LOW), 1 + HIGH)
            clipped = ratio if kept == ratio.item() else torch.tensor(kept, dtype=torch.float64)
            objective = torch.minimum(ratio * gain, clipped * gain)
            if data.reference_logprobs is not None:
                gap = data.reference_logprobs[row, place] - now
                objective = objective - beta * (torch.exp(gap) - gap - 1)
            total = total - objective
        sums.append(total)
        lengths.append(length)
    if kind == "grpo":
        each = [total / length for total, length in zip(sums, lengths, strict=True)]
        return torch.stack(each).sum() / 3
    divisor = sum(lengths) if kind == "bnpo" else 3 * 6
    return torch.stack(sums).sum() / divisor


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("old", [True, False])
def test_value_and_gradients_equal_the_naive_loop(kind: str, beta: float, old: bool) -> None:
    data = experience(old=old, reference=beta > 0)
    found = []
    for implementation in (ours, naive):
        logprobs = numbers(1).requires_grad_()
        loss = implementation(logprobs, data, beta, kind)
        torch.autograd.backward(loss)
        assert logprobs.grad is not None
        found.append((loss.item(), logprobs.grad))
    assert found[0][0] == pytest.approx(found[1][0], abs=1e-10)
    torch.testing.assert_close(found[0][1], found[1][1], atol=1e-10, rtol=0)
    assert found[0][1].abs().max() > 0
    assert found[0][1][MASK == 0].abs().max() == 0


def one_token(ratio: float, advantage: float) -> tuple[float, float, bool]:
    """The loss of one token, its gradient, and whether it counts as clipped."""
    logprob = torch.tensor([[math.log(ratio)]], dtype=torch.float64).requires_grad_()
    data = Experience(
        NO_TOKENS,
        torch.tensor([advantage], dtype=torch.float64),
        torch.zeros(1, 1, dtype=torch.float64),
        None,
    )
    terms = token_loss(logprob, data, low=LOW, high=HIGH, beta=0.0)
    torch.autograd.backward(terms.loss.sum())
    assert logprob.grad is not None
    return terms.loss.item(), logprob.grad.item(), bool(terms.clipped.item())


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient", "clipped"),
    [
        (1.0, 2.0, -2.0, -2.0, False),
        (1.2, 2.0, -2.4, -2.4, False),
        (1.5, 2.0, -2.6, 0.0, True),  # better than before, and far enough
        (1.5, -2.0, 3.0, 3.0, False),  # worse, and still to be undone
        (0.5, -2.0, 1.6, 0.0, True),  # given up far enough
        (0.5, 2.0, -1.0, -1.0, False),
    ],
)
def test_clipping_on_both_sides(
    ratio: float, advantage: float, loss: float, gradient: float, clipped: bool
) -> None:
    found = one_token(ratio, advantage)
    assert found[:2] == pytest.approx((loss, gradient), abs=1e-10)
    assert found[2] is clipped


def test_kl_is_never_negative_and_zero_for_equal_models() -> None:
    terms = token_loss(numbers(1), experience(reference=True), low=LOW, high=HIGH, beta=0.1)
    assert (terms.kl > 0).all()
    data = Experience(NO_TOKENS, torch.zeros(3), None, numbers(1))
    assert token_loss(numbers(1), data, low=LOW, high=HIGH, beta=0.1).kl.abs().max() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_completion_adds_nothing(kind: str) -> None:
    mask = torch.zeros(2, 3)
    assert reduce_loss(torch.ones(2, 3), mask, kind, longest=3).item() == 0


def test_statistics_of_a_micro_batch_are_named_sums() -> None:
    model: Any = tiny_model(tiny_tokenizer())
    tokens = torch.randint(0, 256, (3, 4), generator=torch.Generator().manual_seed(1))
    batch = TokenBatch(tokens, torch.ones_like(tokens), tokens, MASK)
    reference = logprobs_in_parts(model, batch, 1.0, 8)
    data = Experience(batch, torch.tensor([1.0, 2.0, 3.0]), None, reference)
    config = TrainerConfig(beta=0.5, temperature=1.0, max_completion_length=4)
    loss, sums = grpo_loss(model, data, config)
    named = dict(zip(LOSS_STATISTICS, sums.tolist(), strict=True))
    assert loss.requires_grad
    assert loss.item() == pytest.approx(-2.0, abs=1e-6)  # ratio 1 and no distance: -mean advantage
    assert named["loss"] == pytest.approx(-2.0, abs=1e-6)
    assert named["kl"] == pytest.approx(0.0, abs=1e-6)
    assert named["clip_ratio/region_mean"] == 0
    assert 0 < named["entropy"] / 7 < math.log(262)
    assert (named["completion_tokens"], named["tokens"]) == (7, 7 + 12)
