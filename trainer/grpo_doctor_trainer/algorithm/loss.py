"""The clipped GRPO loss, token by token: advantages, the correction for the rollout, statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from grpo_doctor_trainer.algorithm.logprobs import completion_logprobs
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.data.experience import Experience
from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.ranks import Ranks, sum_over_ranks

_EPSILON = 1e-4  # TRL's, so that equal rewards give zero and not a division by zero

_LARGEST_LOG_RATIO = 20.0  # exp(20) is far above any threshold, and still a float
# In nats per token, the mean of |log engine - log trainer|. Equal weights in other kernels differ
# by 1e-6 in float32 and by some hundredths in bfloat16 or with quantized weights. At 0.5 the
# probability of a sampled token is wrong by a factor of 1.6 (e^0.5) on average: no rounding does
# that, and no importance sampling within its usual threshold of 2 makes up for it.
LARGEST_MEAN_GAP = 0.5
_GAP = "sampling/sampling_logp_difference/mean"
SUMS = (
    "loss", "micro_batches", "tokens", "loss_tokens", "entropy", "clipped_low", "clipped_high",
    "kl_tokens", "kl", "gap_tokens", "gap", "weight",
)  # fmt: skip
"""Of all micro-batches: losses, counts, and values of the tokens in the loss."""


def group_advantages(rewards: torch.Tensor, group_size: int, scale: str) -> torch.Tensor:
    """Subtract the mean of each group and divide by a standard deviation.

    A completion without a reward (NaN: no function applied to it) is left out of its group's mean
    and deviation, and gets the advantage 0, as in TRL 1.16.

    Args:
        rewards: [groups x group_size], the completions of a group in a row.
        group_size: completions per prompt.
        scale: `group` divides by the deviation in the group, `batch` by that over all rewards,
            `none` does not divide.

    Returns:
        [groups x group_size], the advantages.

    Source:
        DeepSeekMath (arXiv 2402.03300), equation 3 with outcome supervision; `none` is Dr. GRPO
        (arXiv 2503.20783).
    """
    groups = rewards.view(-1, group_size)
    centered = groups - groups.nanmean(dim=1, keepdim=True)
    if scale == "group":
        centered = centered / (deviation(groups, dim=1).unsqueeze(1) + _EPSILON)
    elif scale == "batch":
        centered = centered / (deviation(rewards) + _EPSILON)
    return centered.view(-1).nan_to_num(nan=0.0)


def deviation(values: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """Return the sample standard deviation of what is not NaN; NaN for fewer than two values.

    Args:
        values: [..., any], NaN where there is no value.
        dim: over which to take it.
    """
    counts = (~values.isnan()).sum(dim=dim)
    squares = (values - values.nanmean(dim=dim, keepdim=True)).square().nansum(dim=dim)
    variance: torch.Tensor = squares / (counts - 1)
    return torch.where(counts > 1, variance, torch.nan).sqrt()


def groups_without_signal(rewards: torch.Tensor, group_size: int) -> float:
    """Return the share of groups that teach nothing: all rewards are equal, or but one is missing.

    With `--scale_rewards batch` TRL gives 0 or 1 here, for the deviation of the whole batch.

    Args:
        rewards: [groups x group_size], NaN for those without a reward.
        group_size: completions per prompt.
    """
    spread = deviation(rewards.view(-1, group_size), dim=1)
    return float((~(spread > 1e-8)).float().mean())


@dataclass(frozen=True)
class RolloutGap:
    """How the engine that sampled differs from the trainer, all [completions, tokens].

    Attributes:
        distance: |log trainer - log engine|.
        weight: of each token's loss; the bare ratio where nothing is corrected.
        mask: 1 for tokens in the loss whose log-prob the engine gave.
    """

    distance: torch.Tensor
    weight: torch.Tensor
    mask: torch.Tensor


def rollout_gap(
    logprobs: torch.Tensor,
    sampling_logprobs: torch.Tensor,
    mask: torch.Tensor,
    mode: str | None,
    threshold: float,
) -> RolloutGap:
    """Compare the log-probs of the same tokens under the same weights, and weigh the tokens.

    Args:
        logprobs: [completions, tokens] of the trainer, of the weights that sampled, no gradient.
        sampling_logprobs: the same of the engine; NaN where it has none, which weighs 1.
        mask: 1 for tokens in the loss.
        mode: `token_truncate` cuts each ratio off at the threshold, `token_mask` drops tokens above
            it; `sequence_truncate` uses the completion's geometric mean of the ratios, cut off, for
            all its tokens; `sequence_mask` drops completions whose mean is above it and keeps the
            tokens' own ratios in the others; none: only measured.
        threshold: the largest weight.

    Source:
        The modes are ms-swift's, whose sequence ratio is the geometric mean. TRL 1.16's sequence
        modes use the product over all tokens, which long completions push past any threshold; its
        token modes are the same as these.
    """
    has_logprob = mask.bool() & sampling_logprobs.isfinite()
    log_ratio = torch.where(has_logprob, logprobs - sampling_logprobs, 0.0)
    ratio = log_ratio.clamp(-_LARGEST_LOG_RATIO, _LARGEST_LOG_RATIO).exp()
    weight = ratio
    if mode == "token_truncate":
        weight = ratio.clamp(max=threshold)
    elif mode == "token_mask":
        weight = ratio * (ratio <= threshold)
    elif mode is not None:
        mean = log_ratio.sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)
        mean_ratio = mean.clamp(max=_LARGEST_LOG_RATIO).exp()
        if mode == "sequence_truncate":
            weight = mean_ratio.clamp(max=threshold).expand_as(ratio)
        else:
            weight = ratio * (mean_ratio <= threshold)
    return RolloutGap(log_ratio.abs(), weight, has_logprob)


def check_gap(config: TrainerConfig, metrics: Mapping[str, float]) -> None:
    """Compare engine and trainer by the metrics of a step, before the step is taken.

    With options that change the distribution that is sampled from, the two differ by intention and
    nothing is compared.
    """
    gap = metrics.get(_GAP, 0.0)
    if gap <= LARGEST_MEAN_GAP or _reshaped(config):
        return
    vllm_log = (
        f"the server at {config.vllm_server_host}:{config.vllm_server_port}"
        if config.vllm_mode == "server"
        else f"the engines' logs are in {config.output_dir}/vllm"
    )
    raise RolloutError(
        f"the vLLM engine does not sample from the weights that are trained: its log-probs differ "
        f"from the trainer's by {gap:.2f} nats per token on average, where the same weights differ "
        f"by less than 0.1. Usual causes: weights that did not arrive, images that the engine "
        f"prepares in another way, another dtype or quantization in the engine ({vllm_log}). "
        f"To do: --use_vllm false shows whether the engine is the cause; then another version of "
        f"vLLM, or --torch_dtype float32 on both sides"
    )


def _reshaped(config: TrainerConfig) -> bool:
    return config.top_p < 1 or config.top_k > 0 or config.repetition_penalty != 1


def token_loss(logprobs: torch.Tensor, experience: Experience, config: TrainerConfig) -> LossTerms:
    """Compute -w min(ratio A, clip(ratio, 1 - low, 1 + high) A) + beta KL for each token.

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
    """Count the tokens of one optimizer step that are in the loss, per micro-batch and rank.

    `dapo` divides by it; every rank gets the same number.
    """
    mine = torch.stack([batch.loss_mask.sum() for batch in micro_batches]).sum().float()
    return float(sum_over_ranks(mine, ranks)) / (len(micro_batches) * ranks.world_size)


def reduce_loss(
    loss: torch.Tensor, mask: torch.Tensor, kind: str, *, longest: int, mean_tokens: float
) -> torch.Tensor:
    """Make one number of the losses of the tokens that `mask` marks.

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
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run the model on one micro-batch.

    Returns:
        the loss, with gradient, and the sums of `loss_sums`.
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
    return loss, loss_sums(loss, terms, logprobs.entropies, experience)


@dataclass(frozen=True)
class LossTerms:
    """The loss of each token and what is worth knowing about it, all [completions, tokens].

    Attributes:
        loss: what is minimized.
        kl: the estimated divergence from the reference model; none without one.
        clipped_low: whether clipping stops the gradient because the token became too unlikely.
        clipped_high: the same because it became too likely.
        gap: between the engine that sampled and the trainer; none where they are one.
    """

    loss: torch.Tensor
    kl: torch.Tensor | None
    clipped_low: torch.Tensor
    clipped_high: torch.Tensor
    gap: RolloutGap | None


@torch.no_grad()
def loss_sums(
    loss: torch.Tensor, terms: LossTerms, entropies: torch.Tensor, experience: Experience
) -> torch.Tensor:
    """Add up what the metrics of a step are made of, over one micro-batch.

    Args:
        loss: of the micro-batch, one number.
        terms: the loss by token.
        entropies: [completions, tokens], in nats.
        experience: the micro-batch.

    Returns:
        [len(SUMS)], float32, on the training device.
    """
    mask, tokens, zero = experience.loss_mask, experience.tokens, loss.new_zeros(())
    sums = {
        "loss": loss,
        "micro_batches": zero + 1,
        "tokens": tokens.prompt_mask.sum() + tokens.completion_mask.sum(),
        "loss_tokens": mask.sum(),
        "entropy": (entropies * mask).sum(),
        "clipped_low": (terms.clipped_low * mask).sum(),
        "clipped_high": (terms.clipped_high * mask).sum(),
    }
    if terms.kl is not None:
        sums |= {"kl_tokens": mask.sum(), "kl": (terms.kl * mask).sum()}
    if terms.gap is not None:
        compared = terms.gap.mask
        sums |= {
            "gap_tokens": compared.sum(),
            "gap": (terms.gap.distance * compared).sum(),
            "weight": (terms.gap.weight * compared).sum(),
        }
    return torch.stack([sums.get(name, zero).float() for name in SUMS])
