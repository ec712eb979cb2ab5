"""ms-swift's options (`swift rlhf --rlhf_type grpo`), read from the argument classes of 3.2 to 4.6.

An unknown flag ends a launch there, so names carry the versions that have them; `until` is the
first version without. Where a class leaves a default to be made at start, it is what GRPO gets.
"""

from __future__ import annotations

from grpo_doctor.knobs.model import Spelling
from grpo_doctor.knobs.rows import Rows

_row = Rows("3.2.0")  # the oldest version that was read
_MODE = "rollout_importance_sampling_mode"
IMPORTANCE_MODES = tuple(
    (True, mode) for mode in ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
)


def engine_key(name: str) -> Spelling:
    """An option of vLLM that has no flag of its own: a key of the JSON in `vllm_engine_kwargs`."""
    return _row(f"vllm.{name}", "vllm_engine_kwargs", None, since="3.10.0", inside=name)


SPELLINGS: tuple[Spelling, ...] = (
    _row("model.name", "model", None),
    _row("model.reference", "ref_model", None),
    _row("model.attention", "attn_impl", None),
    _row("parallel.context", "sequence_parallel_size", 1),
    _row("parallel.strategy", "fsdp", None),
    _row("offload.model", "offload_model", False, since="3.2.1"),
    _row("offload.optimizer", "offload_optimizer", False, since="3.2.1"),
    _row("offload.gc_collect", "gc_collect_after_offload", False, since="3.2.1", until="3.10.0"),
    _row("deepspeed.preset", "deepspeed", None),
    _row("vllm.use", "use_vllm", False),
    _row("vllm.mode", "vllm_mode", "colocate", ("3.12.0", None), since="3.5.0"),
    _row("vllm.gpu_memory_utilization", "vllm_gpu_memory_utilization", 0.9),
    _row("vllm.tensor_parallel_size", "tensor_parallel_size", 1, since="3.3.0", until="3.5.0"),
    _row("vllm.tensor_parallel_size", "vllm_tensor_parallel_size", 1, since="3.5.0"),
    _row("vllm.max_model_len", "vllm_max_model_len", None),
    _row("vllm.max_num_seqs", "vllm_max_num_seqs", 256, ("3.5.0", None), until="3.6.0"),
    _row("vllm.max_num_seqs", "vllm_max_num_seqs", 256, ("3.11.0", None), since="3.7.0"),
    engine_key("max_num_batched_tokens"),
    engine_key("enable_chunked_prefill"),
    engine_key("disable_log_stats"),
    engine_key("kv_cache_memory_bytes"),
    engine_key("kv_cache_dtype"),
    _row("vllm.enforce_eager", "vllm_enforce_eager", False),
    _row("vllm.enable_prefix_caching", "vllm_enable_prefix_caching", True),
    _row("vllm.enable_lora", "vllm_enable_lora", False, since="3.10.0"),
    _row("vllm.sleep_level", "sleep_level", 0, since="3.2.1"),
    _row("vllm.disable_custom_all_reduce", "vllm_disable_custom_all_reduce", True, since="3.7.0"),
    _row("vllm.pipeline_parallel_size", "vllm_pipeline_parallel_size", 1, since="3.7.0"),
    _row("vllm.quantization", "vllm_quantization", None, since="3.7.0"),
    _row("vllm.max_lora_rank", "vllm_max_lora_rank", 16, since="3.7.0"),
    _row("vllm.server_host", "vllm_server_host", None, since="3.4.0"),
    _row("vllm.server_port", "vllm_server_port", 8000, since="3.4.0"),
    _row("vllm.group_port", "vllm_server_group_port", None, since="3.11.0"),
    _row("vllm.server_timeout_s", "vllm_server_timeout", 240.0, since="3.4.0"),
    _row("dataload.num_workers", "dataloader_num_workers", 0, ("3.3.0", 1)),
    _row(
        "dataload.prefetch_factor", "dataloader_prefetch_factor", None, ("3.3.0", 10), ("3.12.0", 2)
    ),
    _row("dataload.persistent_workers", "dataloader_persistent_workers", False, ("4.5.3", True)),
    _row("dataload.pin_memory", "dataloader_pin_memory", True),
    _row("data.max_pixels", "max_pixels", None),
    _row("data.max_length", "max_length", None),
    _row("data.truncation", "truncation_strategy", "delete", ("3.3.0", "left")),
    _row("data.num_proc", "dataset_num_proc", 1),
    _row("rollout.num_generations", "num_generations", 8),
    _row("rollout.completions", "generation_batch_size", None, since="3.5.0"),
    _row("rollout.max_completion_length", "max_completion_length", 512),
    _row("rollout.steps_per_generation", "steps_per_generation", None, since="3.5.0"),
    _row("rollout.temperature", "temperature", 0.9),
    _row("rollout.top_p", "top_p", 0.9, ("4.0.3", 1.0)),
    _row("rollout.top_k", "top_k", 50, ("4.0.3", -1)),
    _row("rollout.repetition_penalty", "repetition_penalty", 1.0),
    _row("rollout.async", "async_generate", False),
    _row("rollout.dynamic_sampling", "dynamic_sample", False, since="3.3.0"),
    _row("rollout.max_resample", "max_resample_times", 3, since="3.3.0"),
    _row("rollout.importance_correction", _MODE, False, since="3.11.0", values=IMPORTANCE_MODES),
    _row("rollout.importance_mode", _MODE, None, since="3.11.0"),
    _row("rollout.importance_cap", "rollout_importance_sampling_threshold", 2.0, since="3.11.0"),
    _row("train.micro_batch", "per_device_train_batch_size", 1),
    _row("train.grad_accumulation", "gradient_accumulation_steps", 1),
    _row("train.gradient_checkpointing", "gradient_checkpointing", True),
    _row("train.num_iterations", "num_iterations", 1),
    # The loss in chunks came to GRPO with 3.5; before, the option changed the model alone.
    _row("train.use_liger", "use_liger_kernel", False, since="3.5.0"),
    _row("train.freeze_vit", "freeze_vit", True),
    _row("train.freeze_llm", "freeze_llm", False),
    _row("train.freeze_aligner", "freeze_aligner", True),
    _row("train.type", "train_type", "lora", until="4.0.0"),
    _row("train.type", "tuner_type", "lora", since="4.0.0"),
    _row("train.lora_rank", "lora_rank", 8),
    _row("train.lora_alpha", "lora_alpha", 32),
    _row("train.lora_targets", "target_modules", "all-linear"),
    _row("train.padding_free", "padding_free", False, since="3.5.0"),
    _row("train.dtype", "torch_dtype", None),
    _row("train.bf16", "bf16", False, ("3.4.0", None)),
    _row("train.fp16", "fp16", False, ("3.4.0", None)),
    _row("train.optimizer", "optim", None),
    _row("train.learning_rate", "learning_rate", None),
    _row("train.lr_scheduler", "lr_scheduler_type", "cosine"),
    _row("train.warmup_steps", "warmup_steps", 0),
    _row("train.weight_decay", "weight_decay", 0.1),
    _row("train.max_grad_norm", "max_grad_norm", 1.0),
    _row("train.beta", "beta", 0.04),
    _row("train.epsilon", "epsilon", 0.2),
    _row("train.epsilon_high", "epsilon_high", None, since="3.2.2"),
    _row("train.delta", "delta", None, since="3.5.0"),
    _row("train.loss_type", "loss_type", "grpo"),
    _row(
        "train.scale_rewards",
        "scale_rewards",
        "group",
        since="3.3.0",
        until="3.10.0",
        values=(("group", True), ("none", False)),
    ),
    _row(
        "train.scale_rewards",
        "scale_rewards",
        "group",
        since="3.10.0",
        values=(("group", "group"), ("batch", "batch"), ("none", "none")),
    ),
    _row("train.importance_level", "importance_sampling_level", "token", since="3.7.0"),
    _row("train.mask_truncated", "overlong_filter", False, since="3.3.0"),
    _row("train.top_entropy_quantile", "top_entropy_quantile", 1.0, since="3.7.0"),
    _row("train.max_steps", "max_steps", -1),
    _row("reward.weights", "reward_weights", None),
    _row("reward.overlong_buffer", "soft_cache_length", None, since="3.3.0"),
    _row("sync.move_model_batches", "move_model_batches", None, since="3.2.1"),
    _row("sync.gather_for_generation", "ds3_gather_for_generation", True),
    _row("sync.flattened", "enable_flattened_weight_sync", True, since="3.11.0"),
    _row("sync.ref_model", "sync_ref_model", False, since="3.5.0"),
    _row("eval.steps", "eval_steps", None),
    _row("eval.micro_batch", "per_device_eval_batch_size", 1),
    _row("log.completions", "log_completions", False),
    _row("checkpoint.save_steps", "save_steps", 500),
    _row("checkpoint.save_only_model", "save_only_model", False),
    _row("checkpoint.save_total_limit", "save_total_limit", None),
    _row("checkpoint.directory", "output_dir", None),
    _row("run.collective_timeout_s", "ddp_timeout", 1800, ("3.5.0", 18_000_000)),
)
