"""OpenRLHF's options (`openrlhf.cli.train_ppo_ray`), read from the argument parsers of 0.6 to 0.11.

Nearly all were renamed in 0.10.2, from underscores to dotted groups. What is true or false is a
switch: its absence is the default, so switching it off means leaving it out.
"""

from __future__ import annotations

from typing import Any

from grpo_doctor.knobs.model import Spelling
from grpo_doctor.knobs.rows import Rows

_row = Rows("0.6.0")
_DOTS = "0.10.2"


def _renamed(
    knob: str, old: str, new: str, default: Any, *later: tuple[str, Any], **more: Any
) -> tuple[Spelling, Spelling]:
    """Return the name before and after 0.10.2; `later` are (from version, default) pairs."""
    last = later[-1][1] if later else default
    since = more.pop("since", None)
    return (
        _row(knob, old, default, *later, since=since, until=_DOTS, **more),
        _row(knob, new, last, since=_DOTS, **more),
    )


def _grouped(knob: str, group: str, name: str, default: Any, **more: Any) -> tuple[Spelling, ...]:
    """Return an option that only went into a group in 0.10.2: `--zpg`, then `--ds.zpg`."""
    return _renamed(knob, name, f"{group}.{name}", default, **more)


_WIDE = (("group", False), ("none", True))
_COLOCATED = (("colocate", True), ("server", False))
_DTYPES = (("bfloat16", "bf16"), ("float16", "fp16"))
_SLEEPS = ((0, False), (1, True))
_LEVELS = (("token", "ppo"), ("sequence", "gspo"))
_CORRECTION = ((False, "off"), (True, "token"), (True, "seq"))
_MEANS = (("dapo", "token-mean"), ("grpo", "seq-mean-token-mean"))

SPELLINGS: tuple[Spelling, ...] = (
    *_renamed("model.name", "pretrain", "actor.model_name_or_path", None),
    *_grouped("model.attention", "ds", "attn_implementation", "flash_attention_2", since="0.9.0"),
    *_grouped("parallel.context", "ds", "ring_attn_size", 1),
    *_renamed(
        "parallel.tensor", "ds_tensor_parallel_size", "ds.tensor_parallel_size", 1, since="0.8.0"
    ),
    *_renamed("run.nodes", "actor_num_nodes", "actor.num_nodes", 1),
    *_renamed("run.gpus_per_node", "actor_num_gpus_per_node", "actor.num_gpus_per_node", 8),
    *_renamed(
        "offload.optimizer", "deepspeed_enable_sleep", "ds.enable_sleep", False, since="0.6.1"
    ),
    *_renamed("offload.reference", "ref_reward_offload", "ref.offload", False),
    *_grouped("deepspeed.stage", "ds", "zero_stage", 2),
    *_grouped("deepspeed.offload_optimizer", "ds", "adam_offload", False),
    *_grouped("deepspeed.overlap_comm", "ds", "overlap_comm", False),
    *_grouped("deepspeed.hpz_partition_size", "ds", "zpg", 1),
    *_renamed(
        "vllm.mode", "colocate_all_models", "train.colocate_all", "server", values=_COLOCATED
    ),
    *_renamed(
        "vllm.gpu_memory_utilization",
        "vllm_gpu_memory_utilization",
        "vllm.gpu_memory_utilization",
        0.9,
        ("0.6.4", 0.95),
    ),
    *_renamed(
        "vllm.tensor_parallel_size", "vllm_tensor_parallel_size", "vllm.tensor_parallel_size", 1
    ),
    *_renamed("vllm.data_parallel_size", "vllm_num_engines", "vllm.num_engines", None),
    *_grouped("vllm.enforce_eager", "vllm", "enforce_eager", False),
    *_grouped("vllm.enable_prefix_caching", "vllm", "enable_prefix_caching", False),
    *_renamed("vllm.sleep_level", "vllm_enable_sleep", "vllm.enable_sleep", 0, values=_SLEEPS),
    *_grouped("dataload.num_workers", "data", "dataloader_num_workers", 0, since="0.9.10"),
    _row("data.max_length", "prompt_max_len", 1024, until="0.9.8"),
    _row("vllm.max_model_len", "max_len", 2048, since="0.9.8", until=_DOTS),
    _row("vllm.max_model_len", "data.max_len", 2048, since=_DOTS),
    *_grouped("rollout.num_generations", "rollout", "n_samples_per_prompt", 1),
    *_renamed("rollout.prompts", "rollout_batch_size", "rollout.batch_size", 1024),
    _row("rollout.max_completion_length", "generate_max_len", 1024, until="0.9.8"),
    *_grouped("rollout.max_completion_length", "rollout", "max_new_tokens", None, since="0.9.8"),
    *_grouped("rollout.temperature", "rollout", "temperature", 1.0),
    *_grouped("rollout.top_p", "rollout", "top_p", 1.0),
    *_renamed("rollout.async", "async_train", "train.async_enable", False, since="0.8.0"),
    *_grouped("rollout.queue_size", "train", "async_queue_size", 1, since="0.9.1"),
    *_renamed(
        "rollout.partial", "partial_rollout", "train.partial_rollout_enable", False, since="0.9.7"
    ),
    *_renamed(
        "rollout.dynamic_sampling",
        "dynamic_filtering",
        "algo.dynamic_filtering_enable",
        False,
        since="0.8.1",
    ),
    _row(
        "rollout.importance_correction",
        "enable_vllm_is_correction",
        False,
        since="0.8.9",
        until=_DOTS,
    ),
    _row(
        "rollout.importance_correction",
        "algo.advantage.is_correction_enable",
        False,
        since=_DOTS,
        until="0.11.2",
    ),
    _row(
        "rollout.importance_correction",
        "algo.advantage.is_correction_level",
        False,
        since="0.11.2",
        values=_CORRECTION,
    ),
    _row(
        "rollout.importance_cap", "vllm_is_truncated_threshold", 2.0, since="0.8.9", until="0.9.1"
    ),
    *_renamed(
        "rollout.importance_cap",
        "vllm_is_truncated_threshold",
        "algo.advantage.is_correction_threshold",
        5.0,
        since="0.9.1",
        item=1,
    ),
    *_renamed(
        "train.micro_batch", "micro_train_batch_size", "train.micro_batch_size", 4, ("0.10.0", 1)
    ),
    *_renamed("train.completions_per_step", "train_batch_size", "train.batch_size", 128),
    *_renamed(
        "train.logprob_micro_batch",
        "micro_rollout_batch_size",
        "rollout.micro_batch_size",
        8,
        ("0.10.0", 1),
    ),
    *_renamed(
        "train.dynamic_batch",
        "use_dynamic_batch",
        "train.dynamic_batch_enable",
        False,
        since="0.8.6",
    ),
    *_renamed(
        "train.max_tokens_per_gpu",
        "train_max_tokens_per_gpu",
        "train.max_tokens_per_gpu",
        16192,
        since="0.8.6",
    ),
    *_renamed(
        "train.gradient_checkpointing",
        "gradient_checkpointing",
        "actor.gradient_checkpointing_enable",
        False,
    ),
    *_grouped("train.num_iterations", "train", "max_epochs", 1),
    *_grouped("train.freeze_vit", "actor", "freeze_visual_encoder", False, since="0.10.0"),
    *_renamed("train.lora_rank", "lora_rank", "ds.lora.rank", 0),
    *_renamed("train.lora_alpha", "lora_alpha", "ds.lora.alpha", 16),
    *_renamed("train.lora_targets", "target_modules", "ds.lora.target_modules", "all-linear"),
    _row("train.bf16", "bf16", False, until="0.9.6"),
    *_grouped("train.dtype", "ds", "param_dtype", "bfloat16", since="0.9.6", values=_DTYPES),
    _row(
        "train.optimizer",
        "actor.optim",
        "adam",
        since=_DOTS,
        values=(("adam", "adam"), ("muon", "muon")),
    ),
    *_grouped("train.padding_free", "ds", "packing_samples", False),
    *_renamed("train.learning_rate", "actor_learning_rate", "actor.adam.lr", 1e-6),
    *_grouped("train.lr_scheduler", "actor", "lr_scheduler", "cosine_with_min_lr", since="0.8.5"),
    *_renamed("train.weight_decay", "l2", "actor.adam.weight_decay", 0.0),
    *_grouped("train.max_grad_norm", "actor", "max_norm", 1.0),
    *_renamed("train.beta", "init_kl_coef", "algo.kl.init_coef", 0.01),
    *_grouped("train.epsilon", "actor", "eps_clip", 0.2),
    *_grouped("train.epsilon_high", "actor", "eps_clip_low_high", None, since="0.8.2", item=1),
    *_grouped("train.delta", "actor", "dual_clip", None, since="0.8.6"),
    _row("train.loss_type", "actor.loss_agg_mode", "dapo", since="0.11.2", values=_MEANS),
    *_renamed(
        "train.scale_rewards",
        "no_advantage_std_norm",
        "algo.advantage.no_std_norm",
        "group",
        since="0.6.4",
        values=_WIDE,
    ),
    *_grouped(
        "train.importance_level",
        "actor",
        "policy_loss_type",
        "token",
        since="0.8.8",
        values=_LEVELS,
    ),
    *_renamed(
        "train.entropy_coefficient",
        "entropy_loss_coef",
        "actor.entropy_coef",
        0.0,
        ("0.8.3", None),
        since="0.7.2",
    ),
    *_grouped("reward.overlong_buffer", "reward", "overlong_buffer_len", None, since="0.8.7"),
    *_renamed("eval.steps", "eval_steps", "eval.steps", -1),
    *_grouped("checkpoint.save_steps", "ckpt", "save_steps", -1),
    # Without DeepSpeed's checkpoint nothing is written at all unless the weights are asked for.
    _row(
        "checkpoint.save_only_model",
        "disable_ds_ckpt",
        False,
        until=_DOTS,
        beside=(("save_hf_ckpt", True),),
    ),
    _row(
        "checkpoint.save_only_model",
        "ckpt.disable_ds",
        False,
        since=_DOTS,
        beside=(("ckpt.save_hf", True),),
    ),
    *_renamed("checkpoint.directory", "ckpt_path", "ckpt.path", "./ckpt/checkpoints_ppo_ray"),
    *_renamed("checkpoint.save_total_limit", "max_ckpt_num", "ckpt.max_num", 3),
)
