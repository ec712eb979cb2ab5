"""The clipped GRPO loss, token by token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from grpo_doctor_trainer.distributed import sum_over_ranks
from grpo_doctor_trainer.logprobs import completion_logits, token_entropies, token_logprobs

if TYPE_CHECKING:
    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.distributed import Ranks
    from grpo_doctor_trainer.experience import Experience


@dataclass(frozen=True)
class LossTerms:
    """The loss of each token and what is worth knowing about it, all [completions, tokens].

    Attributes:
        loss: what is minimized.
        kl: the estimated divergence from the reference model; zero without one.
        clipped: 1 where clipping stops the gradient.
    """

    loss: torch.Tensor
    kl: torch.Tensor
    clipped: torch.Tensor


def token_loss(
    logprobs: torch.Tensor, experience: Experience, *, low: float, high: float, beta: float
) -> LossTerms:
    """Computes -min(ratio A, clip(ratio, 1 - low, 1 + high) A) + beta KL for each token.

    Args:
        logprobs: [completions, tokens] of the weights that are trained, with gradient.
        experience: advantages, and the log-probs to compare with.
        low: clipping of the ratio below 1.
        high: clipping of the ratio above 1.
        beta: weight of the KL term.

    Source:
        DeepSeekMath (arXiv 2402.03300), equations 3 and 4: the KL term is the estimator
        exp(d) - d - 1 with d = log reference - log policy, which is unbiased and never negative.
    """
    old = logprobs.detach() if experience.old_logprobs is None else experience.old_logprobs
    advantages = experience.advantages.unsqueeze(1)
    ratio = (logprobs - old).exp()
    gain = torch.min(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)
    clipped = ((ratio < 1 - low) & (advantages < 0)) | ((ratio > 1 + high) & (advantages > 0))
    if experience.reference_logprobs is None:
        return LossTerms(-gain, torch.zeros_like(ratio), clipped)
    distance = experience.reference_logprobs - logprobs
    kl = distance.exp() - distance - 1
    return LossTerms(-gain + beta * kl, kl.detach(), clipped)


def tokens_in_loss(micro_batches: list[Experience], ranks: Ranks) -> float:
    """Counts the tokens of one optimizer step that are in the loss, per micro-batch and rank.

    `dapo` divides by it; every rank gets the same number.
    """
    mine = torch.stack([batch.loss_mask.sum() for batch in micro_batches]).sum().float()
    return float(sum_over_ranks(mine, ranks)) / (len(micro_batches) * ranks.world_size)


def reduce_loss(loss: torch.Tensor, mask: torch.Tensor, kind: str, longest: int) -> torch.Tensor:
    """Makes one number of the losses of the tokens that `mask` marks.

    Args:
        loss: [completions, tokens].
        mask: the same shape, 1 up to and including the end token.
        kind: `grpo`, `bnpo` or `dr_grpo`.
        longest: the longest possible completion, the fixed divisor of `dr_grpo`.
    """
    masked = loss * mask
    if kind == "grpo":
        return (masked.sum(dim=1) / mask.sum(dim=1).clamp(min=1)).mean()
    if kind == "bnpo":
        return masked.sum() / mask.sum().clamp(min=1)
    return masked.sum() / (loss.size(0) * longest)


def grpo_loss(
    model: Any, experience: Experience, config: TrainerConfig, mean_tokens: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Runs the model on one micro-batch; `mean_tokens` is that of `tokens_in_loss`.

    Returns:
        the loss, with gradient, and what `LOSS_STATISTICS` names, summed: [statistics], float32.
    """
    tokens = experience.tokens
    mask = experience.loss_mask
    logits = completion_logits(model, tokens, config.temperature)
    terms = token_loss(
        token_logprobs(logits, tokens.completion_tokens),
        experience,
        low=config.epsilon,
        high=config.epsilon if config.epsilon_high is None else config.epsilon_high,
        beta=config.beta,
    )
    if config.loss_type == "dapo":
        loss = (terms.loss * mask).sum() / max(1.0, mean_tokens)
    else:
        loss = reduce_loss(terms.loss, mask, config.loss_type, config.max_completion_length)
    sums = [(values * mask).sum() for values in (token_entropies(logits), terms.kl, terms.clipped)]
    counts = [mask.sum(), mask.sum() + tokens.prompt_mask.sum()]
    return loss, torch.stack([loss.detach().float(), *sums, *counts])


LOSS_STATISTICS = ("loss", "entropy", "kl", "clip_ratio/region_mean", "completion_tokens", "tokens")
"""What `grpo_loss` sums up: losses of micro-batches, values of completion tokens, token counts."""
