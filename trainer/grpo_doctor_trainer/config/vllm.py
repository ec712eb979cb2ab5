"""Rollouts with vLLM: in this process or as a server."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor_trainer.config.option import option


@dataclass(frozen=True)
class VllmOptions:
    """Rollouts with vLLM: in this process or as a server."""

    use_vllm: bool = option(False, "vllm", "roll out with vLLM instead of transformers")
    vllm_mode: str = option(
        "colocate",
        "vllm",
        "colocate: an engine in each rank, on its device; server: engines of their own, started "
        "with python -m grpo_doctor_trainer.serve",
        choices=("colocate", "server"),
    )
    vllm_tensor_parallel_size: int = option(
        1, "vllm", "colocate: ranks that share one engine and its weights"
    )
    vllm_gpu_memory_utilization: float = option(
        0.9,
        "vllm",
        "colocate: share of the device's memory for the engine, weights and KV cache; without a "
        "GPU, for the KV cache alone: this share of the host's memory, divided by the ranks on it",
        embedded=0.02,
    )
    vllm_max_model_len: int | None = option(
        None,
        "vllm",
        "longest prompt and completion together; none: --max_length + "
        "--max_completion_length, at most the model's own limit",
    )
    vllm_max_num_seqs: int | None = option(
        None, "vllm", "sequences the engine decodes at once; none: those of one rollout"
    )
    vllm_enforce_eager: bool = option(
        False, "vllm", "no CUDA graphs: starts sooner, decodes more slowly"
    )
    vllm_enable_prefix_caching: bool = option(
        True, "vllm", "compute the shared start of prompts once"
    )
    vllm_enable_lora: bool = option(
        False, "vllm", "send the engine the adapters alone; false: merge them into the weights"
    )
    vllm_max_lora_rank: int = option(16, "vllm", "largest --lora_rank the engine has room for")
    sleep_level: int = option(
        0,
        "vllm",
        "colocate, between rollouts: 0 keeps the engine's memory, 1 moves its weights to host "
        "memory and drops the KV cache, 2 drops both",
    )
    move_model_batches: int | None = option(
        None,
        "vllm",
        "parts in which weights are gathered and sent to the engine; none: all at once",
    )
    vllm_server_host: str = option("127.0.0.1", "vllm", "server: where it runs")
    vllm_server_port: int = option(8000, "vllm", "server: its HTTP port")
    vllm_server_timeout: float = option(240.0, "vllm", "server: seconds to wait for it to come up")
    vllm_timeout: float = option(
        1800.0,
        "vllm",
        "seconds until a silent engine is an error that names its log; server, with several ranks: "
        "at most 0.9 of --ddp_timeout",
    )
    rollout_importance_sampling_mode: str | None = option(
        None,
        "vllm",
        "corrects for log-probs that differ between engine and trainer, by a weight per token or "
        "per completion, cut off or set to 0 above the threshold",
        choices=("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"),
    )
    rollout_importance_sampling_threshold: float = option(
        2.0, "vllm", "largest weight of that correction"
    )
