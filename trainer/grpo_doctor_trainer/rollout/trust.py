"""Whether the rollout engine samples from the weights that are trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpo_doctor_trainer.errors import RolloutError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from grpo_doctor_trainer.config import TrainerConfig

# In nats per token, the mean of |log engine - log trainer|. Equal weights in other kernels differ
# by 1e-6 in float32 and by some hundredths in bfloat16 or with quantized weights. At 0.5 the
# probability of a sampled token is wrong by a factor of 1.6 (e^0.5) on average: no rounding does
# that, and no importance sampling within its usual threshold of 2 makes up for it.
LARGEST_MEAN_GAP = 0.5
_GAP = "sampling/sampling_logp_difference/mean"


def check_gap(config: TrainerConfig, found: Mapping[str, float]) -> None:
    """Compares engine and trainer by the metrics of a step, before the step is taken.

    With options that change the distribution that is sampled from, the two differ by intention and
    nothing is compared.

    Args:
        config: the options.
        found: metrics over all ranks, equal on each, so that all raise or none does.

    Raises:
        RolloutError: they are too far apart to be the same weights on the same inputs.
    """
    gap = found.get(_GAP, 0.0)
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
