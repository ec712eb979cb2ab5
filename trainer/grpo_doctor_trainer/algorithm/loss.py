"""The clipped GRPO loss, token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from grpo_doctor_trainer.algorithm.importance import rollout_gap
from grpo_doctor_trainer.algorithm.logprobs import completion_logprobs
from grpo_doctor_trainer.algorithm.statistics import LossStatistics, LossTerms, loss_statistics
from grpo_doctor_trainer.ranks.group import sum_over_ranks

if TYPE_CHECKING:
    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.data.experience import Experience
    from grpo_doctor_trainer.ranks.group import Ranks


def token_loss(logprobs: torch.Tensor, experience: Experience, config: TrainerConfig) -> LossTerms:
    """Computes -w min(ratio A, clip(ratio, 1 - low, 1 + high) A) + beta KL for each token.

    The weight w is 1 without `--rollout_importance_sampling_mode`; as in TRL it weighs what was
    sampled, not the KL term.

    Args:
        logprobs: [completions, tokens] of the weights that are trained, with gradient.
        experience: advantages, and the log-probs to compare with.
        config: epsilon, beta and the correction for the rollout.

    Source:
        DeepSeekMath (arXiv 2402.03300), equations 3 and 4: the KL term is the estimator
        exp(d) - d - 1 with d = log reference - log policy, which is unbiased and never negative.
        DAPO (arXiv 2503.14476), equation 8, has the separate bound upwards.
    """
    # Without old log-probs these are the weights that sampled: ratio 1, and the gradient of it.
    old = logprobs.detach() if experience.old_logprobs is None else experience.old_logprobs
    upwards = config.epsilon if config.epsilon_high is None else config.epsilon_high
    low, high = 1 - config.epsilon, 1 + upwards
    advantages = experience.advantages.unsqueeze(1)
    ratio = (logprobs - old).exp()
    loss = -torch.min(ratio * advantages, ratio.clamp(low, high) * advantages)

    gap = kl = None
    if experience.sampling_logprobs is not None:
        mode = config.rollout_importance_sampling_mode
        threshold = config.rollout_importance_sampling_threshold
        mask = experience.loss_mask
        gap = rollout_gap(old, experience.sampling_logprobs, mask, mode, threshold)
        if mode is not None:
            loss = loss * gap.weight
    if experience.reference_logprobs is not None:
        distance = experience.reference_logprobs - logprobs
        kl = distance.exp() - distance - 1
        loss = loss + config.beta * kl
    return LossTerms(
        loss=loss,
        kl=None if kl is None else kl.detach(),
        clipped_low=(ratio < low) & (advantages < 0),
        clipped_high=(ratio > high) & (advantages > 0),
        gap=gap,
    )


def tokens_in_loss(micro_batches: list[Experience], ranks: Ranks) -> float:
    """Counts the tokens of one optimizer step that are in the loss, per micro-batch and rank.

    `dapo` divides by it; every rank gets the same number.

    Args:
        micro_batches: those of one optimizer step on this rank.
        ranks: this process among the others; a collective.
    """
    mine = torch.stack([batch.loss_mask.sum() for batch in micro_batches]).sum().float()
    return float(sum_over_ranks(mine, ranks)) / (len(micro_batches) * ranks.world_size)


def reduce_loss(
    loss: torch.Tensor, mask: torch.Tensor, kind: str, *, longest: int, mean_tokens: float
) -> torch.Tensor:
    """Makes one number of the losses of the tokens that `mask` marks.

    The engine then takes the mean over micro-batches and ranks. So `grpo` and `dr_grpo` are the
    same for any split of the batch, and `dapo` is because of its divisor. `bnpo` is a mean over
    each micro-batch by itself, as in TRL and ms-swift: it depends on the split.

    Args:
        loss: [completions, tokens].
        mask: the same shape, 1 up to and including the end token.
        kind: `grpo` (DeepSeekMath), `bnpo`, `dr_grpo` (arXiv 2503.20783) or `dapo`
            (arXiv 2503.14476). The papers' `dapo` is a mean over the tokens of one optimizer step,
            as here. TRL 1.16 divides by the mean over all steps on a rollout instead, which
            differs where `--steps_per_generation` feeds several.
        longest: the longest possible completion, the fixed divisor of `dr_grpo`.
        mean_tokens: that of `tokens_in_loss`, the divisor of `dapo`.
    """
    masked = loss * mask
    if kind == "grpo":
        return (masked.sum(dim=1) / mask.sum(dim=1).clamp(min=1)).mean()
    if kind == "bnpo":
        return masked.sum() / mask.sum().clamp(min=1)
    if kind == "dapo":
        return masked.sum() / max(1.0, mean_tokens)
    return masked.sum() / (loss.size(0) * longest)


def grpo_loss(
    model: Any, experience: Experience, config: TrainerConfig, mean_tokens: float
) -> tuple[torch.Tensor, LossStatistics]:
    """Runs the model on one micro-batch.

    Args:
        model: of the engine, with gradient.
        experience: the micro-batch.
        config: the options of the loss.
        mean_tokens: that of `tokens_in_loss`.

    Returns:
        the loss, with gradient, and what is worth knowing about it.
    """
    logprobs = completion_logprobs(
        model,
        experience.tokens,
        config.temperature,
        share_prompts=config.share_prompts,
        entropy=True,
    )
    terms = token_loss(logprobs.chosen, experience, config)
    loss = reduce_loss(
        terms.loss,
        experience.loss_mask,
        config.loss_type,
        longest=config.max_completion_length,
        mean_tokens=mean_tokens,
    )
    return loss, loss_statistics(loss, terms, logprobs.entropies, experience)
