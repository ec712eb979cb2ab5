"""The gap between the log-probs of the rollout engine and of the trainer: corrected, or refused.

An engine with other kernels, dtypes or caches samples from a slightly different distribution than
the one that is trained. Weighting each token by the ratio of both makes the gradient that of the
trained weights again; truncating the weights keeps its variance bounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from grpo_doctor_trainer.errors import RolloutError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from grpo_doctor_trainer.config import TrainerConfig

_LARGEST_LOG_RATIO = 20.0  # exp(20) is far above any threshold, and still a float
# In nats per token, the mean of |log engine - log trainer|. Equal weights in other kernels differ
# by 1e-6 in float32 and by some hundredths in bfloat16 or with quantized weights. At 0.5 the
# probability of a sampled token is wrong by a factor of 1.6 (e^0.5) on average: no rounding does
# that, and no importance sampling within its usual threshold of 2 makes up for it.
LARGEST_MEAN_GAP = 0.5
_GAP = "sampling/sampling_logp_difference/mean"


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
    """Compares engine and trainer by the metrics of a step, before the step is taken.

    With options that change the distribution that is sampled from, the two differ by intention and
    nothing is compared.

    Args:
        config: the options.
        metrics: over all ranks, equal on each, so that all raise or none does.

    Raises:
        RolloutError: they are too far apart to be the same weights on the same inputs.
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
        f"vLLM, --torch_dtype float32 on both sides, or --vllm_enable_lora false"
    )


def _reshaped(config: TrainerConfig) -> bool:
    return config.top_p < 1 or config.top_k > 0 or config.repetition_penalty != 1
