"""The `--vllm_...` options of an engine inside each rank: checks, and what vLLM calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grpo_doctor_trainer.errors import ConfigError

if TYPE_CHECKING:
    from grpo_doctor_trainer.config import TrainerConfig

_SLEEP_LEVELS = (0, 1, 2)
# vLLM compiles its adapter kernels for these ranks alone (vllm.config.lora, 0.32).
_LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)


def check_colocated_options(config: TrainerConfig, world_size: int) -> None:
    """Raises `ConfigError` for what an engine in each rank cannot work with; imports no torch."""
    if not config.use_vllm or config.vllm_mode != "colocate":
        return
    _check_tensor_parallel(config.vllm_tensor_parallel_size, world_size)
    if not 0 < config.vllm_gpu_memory_utilization <= 1:
        raise ConfigError(
            f"--vllm_gpu_memory_utilization {config.vllm_gpu_memory_utilization} is a share of the "
            "memory: above 0 and at most 1, such as 0.5"
        )
    if config.sleep_level not in _SLEEP_LEVELS:
        raise ConfigError(f"--sleep_level {config.sleep_level} must be 0, 1 or 2")
    longest = config.vllm_max_model_len
    if longest is not None and longest <= config.max_completion_length:
        raise ConfigError(
            f"--vllm_max_model_len {longest} leaves no room for a prompt before "
            f"--max_completion_length {config.max_completion_length} tokens; raise it to "
            f"{config.max_length + config.max_completion_length} (--max_length + "
            "--max_completion_length), or shorten the completions"
        )
    _check_adapters(config)


def _check_tensor_parallel(size: int, world_size: int) -> None:
    if world_size % size:
        valid = [n for n in range(1, world_size + 1) if world_size % n == 0]
        raise ConfigError(
            f"--vllm_tensor_parallel_size {size} must divide the {world_size} "
            f"rank{'s' * (world_size > 1)}: each engine spans that many; valid values here: "
            f"{', '.join(map(str, valid))}"
        )


def _check_adapters(config: TrainerConfig) -> None:
    if not config.vllm_enable_lora:
        return
    if config.train_type != "lora":
        raise ConfigError(
            f"--vllm_enable_lora sends the engine adapters, and --train_type {config.train_type} "
            "has none; use --train_type lora, or leave --vllm_enable_lora out"
        )
    if config.lora_rank > config.vllm_max_lora_rank:
        raise ConfigError(
            f"--lora_rank {config.lora_rank} is above --vllm_max_lora_rank "
            f"{config.vllm_max_lora_rank}; raise --vllm_max_lora_rank to {config.lora_rank}"
        )
    if config.vllm_max_lora_rank > _LORA_RANKS[-1]:
        raise ConfigError(
            f"--vllm_max_lora_rank {config.vllm_max_lora_rank} is above what vLLM has kernels for: "
            f"{_LORA_RANKS[-1]}"
        )
    if config.sleep_level == 2:
        raise ConfigError(
            "--sleep_level 2 drops the engine's weights, and --vllm_enable_lora sends only the "
            "adapters afterwards; use --sleep_level 1, or leave --vllm_enable_lora out"
        )


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
        rank = next(rank for rank in _LORA_RANKS if rank >= config.vllm_max_lora_rank)
        options |= {"enable_lora": True, "max_lora_rank": rank, "max_loras": 1}
    return options
