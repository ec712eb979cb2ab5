"""The gap between the log-probs of the rollout engine and of the trainer, and its correction.

An engine with other kernels, dtypes or caches samples from a slightly different distribution than
the one that is trained. Weighting each token by the ratio of both makes the gradient that of the
trained weights again; truncating the weights keeps its variance bounded.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

_LARGEST_LOG_RATIO = 20.0  # exp(20) is far above any threshold, and still a float


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
    """Compares the log-probs of the same tokens under the same weights, and weighs the tokens.

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
    known = mask.bool() & sampling_logprobs.isfinite()
    log_ratio = torch.where(known, logprobs - sampling_logprobs, 0.0)
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
    return RolloutGap(log_ratio.abs(), weight, known)
