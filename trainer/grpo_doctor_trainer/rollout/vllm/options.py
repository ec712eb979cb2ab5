"""The `--vllm_...` options of an engine inside each rank, and what vLLM calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grpo_doctor_trainer.config.validation import VLLM_LORA_RANKS

if TYPE_CHECKING:
    from grpo_doctor_trainer.config import TrainerConfig


def longest_sequence(config: TrainerConfig, context: int | None) -> int:
    """Gives the most tokens that prompt and completion may have together."""
    if config.vllm_max_model_len is not None:
        return config.vllm_max_model_len
    wanted = config.max_length + config.max_completion_length
    return wanted if context is None else min(wanted, context)


def engine_options(
    config: TrainerConfig, *, model: str, context: int | None, cache_bytes: int | None
) -> dict[str, Any]:
    """Names the options as vLLM's `EngineArgs` does.

    Args:
        config: the options; `torch_dtype` is resolved.
        model: folder or Hugging Face name of the policy.
        context: the most tokens that the model can take, if it says.
        cache_bytes: size of the KV cache on a machine without a device; none: vLLM measures what
            `--vllm_gpu_memory_utilization` leaves of the device.
    """
    parallel = config.vllm_tensor_parallel_size
    options: dict[str, Any] = {
        "model": model,
        "dtype": config.torch_dtype,
        "tensor_parallel_size": parallel,
        "distributed_executor_backend": "external_launcher",  # the ranks exist already
        "max_model_len": longest_sequence(config, context),
        "max_num_seqs": config.vllm_max_num_seqs or config.completions_per_rank * parallel,
        "gpu_memory_utilization": config.vllm_gpu_memory_utilization,
        # On a CPU "graphs" are minutes of compilation.
        "enforce_eager": config.vllm_enforce_eager or cache_bytes is not None,
        "enable_prefix_caching": config.vllm_enable_prefix_caching,
        # The first sync brings all weights; with adapters alone the base has to be read.
        "load_format": "auto" if config.vllm_enable_lora else "dummy",
        "seed": config.seed,
        "generation_config": "vllm",  # sampling is the trainer's matter, not the model folder's
        "logprobs_mode": "processed_logprobs",
        "enable_sleep_mode": config.sleep_level > 0,
        "disable_log_stats": False,
    }
    if cache_bytes is not None:
        options["kv_cache_memory_bytes"] = cache_bytes
    if config.vllm_enable_lora:
        rank = next(rank for rank in VLLM_LORA_RANKS if rank >= config.vllm_max_lora_rank)
        options |= {"enable_lora": True, "max_lora_rank": rank, "max_loras": 1}
    return options
