"""Rewards, sampling and vLLM."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor_trainer.config.option import Options, option


@dataclass(frozen=True)
class RewardOptions(Options, heading="rewards"):
    """Reward functions, and what becomes of their scores."""

    reward_funcs: list[str] = option(
        [],
        "accuracy, format, length, arithmetic, or path/to/file.py:function; "
        "none: accuracy, with arithmetic for generated arithmetic",
    )
    reward_weights: list[float] = option([], "one weight per reward function; none: 1 each")
    scale_rewards: str = option(
        "group",
        "what divides the advantages: the reward's standard deviation in its group, in the whole "
        "batch, or nothing",
        choices=("group", "batch", "none"),
        embedded="none",
    )
    reward_timeout: float = option(
        60.0,
        "seconds that one call of a reward function may take for the rank's whole batch; then the "
        "run ends and says where it hung; 0: no limit",
        ge=0,
    )
    reward_num_workers: int = option(
        1,
        "processes per rank that run the reward functions, different ones at once and during the "
        "log-probs; 0: in the trainer's own process, for a debugger, without --reward_timeout",
        ge=0,
    )


@dataclass(frozen=True)
class RolloutOptions(Options, heading="rollout"):
    """Sampling, and what makes room for it."""

    num_generations: int = option(
        8,
        "completions per prompt, the group of GRPO",
        ge=2,
        reason="a single completion has no group to compare with",
        embedded=16,
    )
    max_completion_length: int = option(512, "longest completion in tokens", ge=1, embedded=8)
    temperature: float = option(
        0.9,
        "sampling temperature",
        gt=0,
        reason="at 0 all completions of a group are equal; try 1.0",
        embedded=1.0,
    )
    top_p: float = option(1.0, "nucleus sampling; 1: off", gt=0, le=1)
    top_k: int = option(-1, "sample from the k likeliest tokens; -1 or 0: from all", ge=-1)
    repetition_penalty: float = option(1.0, "above 1 makes repetitions unlikelier", gt=0)
    ds3_gather_for_generation: bool = option(
        True,
        "ZeRO-3: gather all weights once per rollout; false: layer by layer for each token, slow, "
        "for models that do not fit",
    )
    offload_model: bool = option(
        False, "move weights the rollout does not need to host memory while it runs"
    )
    offload_optimizer: bool = option(
        False, "move the optimizer state to host memory while the rollout runs"
    )
    gc_collect_after_offload: bool = option(
        False, "collect garbage and empty the CUDA cache after each offload"
    )


@dataclass(frozen=True)
class VllmOptions(Options, heading="vllm"):
    """Rollouts with vLLM: in this process or as a server."""

    use_vllm: bool = option(False, "roll out with vLLM instead of transformers")
    vllm_mode: str = option(
        "colocate",
        "colocate: an engine in each rank, on its device; server: vLLM's own server, whose command "
        "the trainer shows while it waits for it",
        choices=("colocate", "server"),
    )
    vllm_tensor_parallel_size: int = option(
        1, "colocate: ranks that share one engine and its weights", ge=1
    )
    vllm_gpu_memory_utilization: float = option(
        0.9,
        "colocate: share of the device's memory for the engine, weights and KV cache; without a "
        "GPU, for the KV cache alone: this share of the host's memory, divided by the ranks on it",
        gt=0,
        le=1,
        reason="it is a share of the memory, such as 0.5",
        embedded=0.02,
    )
    vllm_max_model_len: int | None = option(
        None,
        "longest prompt and completion together; none: --max_length + "
        "--max_completion_length, at most the model's own limit",
        ge=1,
    )
    vllm_max_num_seqs: int | None = option(
        None, "sequences the engine decodes at once; none: those of one rollout", ge=1
    )
    vllm_enforce_eager: bool = option(False, "no CUDA graphs: starts sooner, decodes more slowly")
    vllm_enable_prefix_caching: bool = option(True, "compute the shared start of prompts once")
    vllm_enable_lora: bool = option(
        False, "send the engine the adapters alone; false: merge them into the weights"
    )
    vllm_max_lora_rank: int = option(16, "largest --lora_rank the engine has room for", ge=1)
    sleep_level: int = option(
        0,
        "colocate, between rollouts: 0 keeps the engine's memory, 1 moves its weights to host "
        "memory and drops the KV cache, 2 drops both",
        ge=0,
        le=2,
    )
    move_model_batches: int | None = option(
        None, "parts in which weights are gathered and sent to the engine; none: all at once", ge=1
    )
    vllm_server_host: str = option("127.0.0.1", "server: where it runs")
    vllm_server_port: int = option(8000, "server: its HTTP port", ge=1, le=65535)
    vllm_server_timeout: float = option(240.0, "server: seconds to wait for it to come up", gt=0)
    vllm_weights_dir: str | None = option(
        None,
        "server: folder through which it gets the weights; both must see it; none: /dev/shm, then "
        "--output_dir",
    )
    vllm_timeout: float = option(
        1800.0,
        "seconds until a silent engine is an error; server, with several ranks: "
        "at most 0.9 of --ddp_timeout",
        gt=0,
    )
    rollout_importance_sampling_mode: str | None = option(
        None,
        "corrects for log-probs that differ between engine and trainer, by a weight per token or "
        "per completion, cut off or set to 0 above the threshold",
        choices=("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"),
    )
    rollout_importance_sampling_threshold: float = option(
        2.0, "largest weight of that correction", gt=0
    )
