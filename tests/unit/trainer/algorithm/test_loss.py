"""The GRPO loss: value and gradients against a loop written out from the papers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from grpo_doctor_trainer.algorithm.loss import reduce_loss, token_loss, tokens_in_loss
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.data.experience import Experience, TokenBatch
from grpo_doctor_trainer.ranks import Ranks

LOW, HIGH = 0.2, 0.3
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]])
NO_TOKENS = TokenBatch(MASK, MASK, MASK, MASK)
KINDS = ["grpo", "bnpo", "dr_grpo", "dapo"]
MEAN_TOKENS = 5.0


def settings(epsilon_high: float | None = HIGH, **options: Any) -> TrainerConfig:
    return TrainerConfig(epsilon=LOW, epsilon_high=epsilon_high, **options)


def numbers(seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return -2 * torch.rand(3, 4, dtype=torch.float64, generator=generator)


def experience(*, old: bool = True, reference: bool = False) -> Experience:
    advantages = torch.tensor([1.5, -0.7, 0.2], dtype=torch.float64)
    return Experience(
        NO_TOKENS, advantages, numbers(2) if old else None, numbers(3) if reference else None
    )


def ours(logprobs: torch.Tensor, data: Experience, beta: float, kind: str) -> torch.Tensor:
    terms = token_loss(logprobs, data, settings(beta=beta))
    return reduce_loss(terms.loss, MASK, kind, longest=6, mean_tokens=MEAN_TOKENS)


def naive(logprobs: torch.Tensor, data: Experience, beta: float, kind: str) -> torch.Tensor:
    """One token after the other, scalars only."""
    sums, lengths = [], []
    for row in range(3):
        total = torch.zeros((), dtype=torch.float64)
        length = int(MASK[row].sum())
        for column in range(length):
            now = logprobs[row, column]
            before = now.detach() if data.old_logprobs is None else data.old_logprobs[row, column]
            gain = data.advantages[row]
            ratio = torch.exp(now - before)
            bound = min(max(ratio.item(), 1 - LOW), 1 + HIGH)
            clipped = ratio if bound == ratio.item() else torch.tensor(bound, dtype=torch.float64)
            objective = torch.minimum(ratio * gain, clipped * gain)
            if data.reference_logprobs is not None:
                gap = data.reference_logprobs[row, column] - now
                objective = objective - beta * (torch.exp(gap) - gap - 1)
            total = total - objective
        sums.append(total)
        lengths.append(length)
    if kind == "grpo":
        each = [total / length for total, length in zip(sums, lengths, strict=True)]
        return torch.stack(each).sum() / 3
    divisor = {"bnpo": sum(lengths), "dr_grpo": 3 * 6, "dapo": MEAN_TOKENS}[kind]
    return torch.stack(sums).sum() / divisor


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("old", [True, False])
def test_value_and_gradients_equal_the_naive_loop(kind: str, beta: float, old: bool) -> None:
    data = experience(old=old, reference=beta > 0)
    losses = []
    for implementation in (ours, naive):
        logprobs = numbers(1).requires_grad_()
        loss = implementation(logprobs, data, beta, kind)
        torch.autograd.backward(loss)
        assert logprobs.grad is not None
        losses.append((loss.item(), logprobs.grad))
    assert losses[0][0] == pytest.approx(losses[1][0], abs=1e-10)
    torch.testing.assert_close(losses[0][1], losses[1][1], atol=1e-10, rtol=0)
    assert losses[0][1].abs().max() > 0
    assert losses[0][1][MASK == 0].abs().max() == 0


def one_token(ratio: float, advantage: float) -> tuple[float, float, str]:
    """The loss of one token, its gradient, and where it counts as clipped."""
    logprob = torch.tensor([[math.log(ratio)]], dtype=torch.float64).requires_grad_()
    data = Experience(
        NO_TOKENS,
        torch.tensor([advantage], dtype=torch.float64),
        torch.zeros(1, 1, dtype=torch.float64),
        None,
    )
    terms = token_loss(logprob, data, settings(beta=0.0))
    torch.autograd.backward(terms.loss.sum())
    assert logprob.grad is not None
    low, high = bool(terms.clipped_low.item()), bool(terms.clipped_high.item())
    clipped = "low" * low + "high" * high
    return terms.loss.item(), logprob.grad.item(), clipped


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient", "clipped"),
    [
        (1.0, 2.0, -2.0, -2.0, ""),
        (1.2, 2.0, -2.4, -2.4, ""),
        (1.5, 2.0, -2.6, 0.0, "high"),  # better than before, and far enough
        (1.5, -2.0, 3.0, 3.0, ""),  # worse, and still to be undone
        (0.5, -2.0, 1.6, 0.0, "low"),  # given up far enough
        (0.5, 2.0, -1.0, -1.0, ""),
        (1.5, 0.0, 0.0, 0.0, ""),  # nothing to stop
        (0.5, 0.0, 0.0, 0.0, ""),
    ],
)
def test_clipping_on_both_sides(
    ratio: float, advantage: float, loss: float, gradient: float, clipped: str
) -> None:
    actual = one_token(ratio, advantage)
    assert actual[:2] == pytest.approx((loss, gradient), abs=1e-10)
    assert actual[2] == clipped


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_token_at_the_edge_of_the_region_is_not_clipped(advantage: float) -> None:
    data = Experience(NO_TOKENS, torch.full((3,), advantage), numbers(1), None)
    terms = token_loss(numbers(1), data, TrainerConfig(epsilon=0.0, epsilon_high=0.0))
    assert not terms.clipped_low.any()
    assert not terms.clipped_high.any()


def test_without_a_bound_of_its_own_the_region_ends_as_far_above_as_below() -> None:
    data = Experience(NO_TOKENS, torch.ones(3), numbers(1) - math.log(1.25), None)
    clipped = {
        upper: bool(token_loss(numbers(1), data, settings(upper)).clipped_high.all())
        for upper in (None, 0.3)
    }
    assert clipped == {None: True, 0.3: False}


def test_kl_is_never_negative_and_zero_for_equal_models() -> None:
    terms = token_loss(numbers(1), experience(reference=True), settings(beta=0.1))
    assert terms.kl is not None
    assert (terms.kl > 0).all()
    data = Experience(NO_TOKENS, torch.zeros(3), None, numbers(1))
    terms = token_loss(numbers(1), data, settings(beta=0.1))
    assert terms.kl is not None
    assert terms.kl.abs().max() == 0


def test_weights_of_the_rollout_multiply_what_was_sampled_and_not_the_kl_term() -> None:
    data = replace(experience(reference=True), sampling_logprobs=numbers(2) - 0.4)
    plain = token_loss(numbers(1), data, settings(beta=0.1))
    weighted = token_loss(
        numbers(1), data, settings(beta=0.1, rollout_importance_sampling_mode="token_truncate")
    )
    assert plain.kl is not None
    kl = 0.1 * plain.kl
    expected = (plain.loss - kl) * math.exp(0.4) + kl
    torch.testing.assert_close(weighted.loss[MASK == 1], expected[MASK == 1], atol=1e-12, rtol=0)
    for terms in (plain, weighted):  # the gap is known, corrected or not
        assert terms.gap is not None
        assert terms.gap.distance[MASK == 1].tolist() == pytest.approx([0.4] * 7)


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_completion_adds_nothing(kind: str) -> None:
    mask = torch.zeros(2, 3)
    assert reduce_loss(torch.ones(2, 3), mask, kind, longest=3, mean_tokens=0.0).item() == 0


@pytest.mark.parametrize(("tokens", "divisor"), [(4.0, 4.0), (0.5, 1.0)])
def test_dapo_divides_by_the_tokens_of_a_step_or_one(tokens: float, divisor: float) -> None:
    loss = reduce_loss(torch.ones(1, 3), torch.ones(1, 3), "dapo", longest=9, mean_tokens=tokens)
    assert loss.item() == 3 / divisor


def test_tokens_of_a_step_are_counted_for_a_micro_batch() -> None:
    alone = Ranks(rank=0, world_size=1, local_rank=0, device=torch.device("cpu"), threads=1)
    masked = replace(experience(), kept=torch.tensor([1, 0, 1]))
    assert tokens_in_loss([experience(), masked], alone) == (7 + 5) / 2
