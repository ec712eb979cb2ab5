"""TRL's options: fields of `GRPOConfig` of 0.14 to 1.16, and flags where it is parsed.

`trl grpo` and any script with `TrlParser` or `HfArgumentParser` take them as flags; a script that
makes its own `GRPOConfig(...)` takes the same names as arguments.
"""

from __future__ import annotations

from grpo_doctor.knobs.model import Gate, Spelling
from grpo_doctor.knobs.rows import Rows

_row = Rows("0.14.0")
_CORRECTION = "vllm_importance_sampling_correction"
_SCALES = (
    ("group", "group"),
    ("batch", "batch"),
    ("none", "none"),
    ("group", True),
    ("none", False),
)

SPELLINGS: tuple[Spelling, ...] = (
    _row("deepspeed.preset", "deepspeed", None),
    _row("vllm.use", "use_vllm", False),
    _row("vllm.mode", "vllm_mode", "server", ("1.0.0", "colocate"), since="0.18.0"),
    _row(
        "vllm.gpu_memory_utilization",
        "vllm_gpu_memory_utilization",
        0.9,
        ("0.16.0", None),
        ("0.18.0", 0.3),
    ),
    _row("vllm.tensor_parallel_size", "vllm_tensor_parallel_size", 1, since="0.18.0"),
    _row("vllm.max_model_len", "vllm_max_model_len", None, since="0.15.0", until="0.18.0"),
    _row("vllm.max_model_len", "vllm_max_model_length", None, since="0.26.0"),
    _row(
        "vllm.sleep_level",
        "vllm_enable_sleep_mode",
        0,
        since="0.23.0",
        until="0.25.0",
        values=((0, False), (1, True), (2, True)),
    ),
    _row(
        "vllm.sleep_level",
        "vllm_enable_sleep_mode",
        0,
        since="0.25.0",
        values=((0, False), (2, True), (1, True)),
    ),
    _row("dataload.num_workers", "dataloader_num_workers", 0),
    _row("dataload.prefetch_factor", "dataloader_prefetch_factor", None),
    _row("dataload.persistent_workers", "dataloader_persistent_workers", False),
    _row("dataload.pin_memory", "dataloader_pin_memory", True),
    _row("data.max_length", "max_prompt_length", 512, ("0.26.0", None), until="0.28.0"),
    _row("rollout.num_generations", "num_generations", 8),
    _row("rollout.completions", "generation_batch_size", None, since="0.18.0"),
    _row("rollout.max_completion_length", "max_completion_length", 256, ("1.10.0", 512)),
    _row("rollout.steps_per_generation", "steps_per_generation", None, since="0.18.0"),
    _row("rollout.temperature", "temperature", 0.9, ("0.18.0", 1.0)),
    _row("rollout.top_p", "top_p", 1.0, since="0.16.0"),
    _row("rollout.top_k", "top_k", 50, ("0.18.0", None), ("0.27.0", 0), since="0.16.0"),
    _row("rollout.repetition_penalty", "repetition_penalty", 1.0, since="0.16.0"),
    _row("rollout.importance_correction", _CORRECTION, True, since="0.23.0"),
    _row(
        "rollout.importance_mode",
        "vllm_importance_sampling_mode",
        "sequence_mask",
        since="0.26.0",
        gate=Gate(_CORRECTION, on=True, value="sequence_mask"),
    ),
    _row(
        "rollout.importance_cap",
        "vllm_importance_sampling_cap",
        2.0,
        ("0.26.0", 3.0),
        since="0.23.0",
        until="1.6.0",
    ),
    _row("rollout.importance_cap", "vllm_importance_sampling_clip_max", 3.0, since="1.6.0"),
    _row("train.micro_batch", "per_device_train_batch_size", 1, ("0.15.0", 8)),
    _row("train.grad_accumulation", "gradient_accumulation_steps", 8, ("0.15.0", 1)),
    _row("train.gradient_checkpointing", "gradient_checkpointing", False, ("0.22.0", True)),
    _row("train.num_iterations", "num_iterations", 1, since="0.16.0"),
    _row("train.use_liger", "use_liger_loss", False, since="0.17.0", until="0.25.0"),
    _row("train.use_liger", "use_liger_kernel", False, since="0.25.0"),
    _row("train.optimizer", "optim", None),
    _row("train.learning_rate", "learning_rate", 1e-6),
    _row("train.lr_scheduler", "lr_scheduler_type", "linear"),
    _row("train.warmup_steps", "warmup_steps", 0),
    _row("train.weight_decay", "weight_decay", 0.0),
    _row("train.max_grad_norm", "max_grad_norm", 1.0),
    _row("train.beta", "beta", 0.04, ("0.19.0", 0.0)),
    _row("train.epsilon", "epsilon", 0.2, since="0.16.0"),
    _row("train.epsilon_high", "epsilon_high", None, since="0.16.0"),
    _row("train.delta", "delta", None, since="0.18.0"),
    _row("train.loss_type", "loss_type", "bnpo", ("0.22.0", "dapo"), since="0.17.0"),
    _row(
        "train.scale_rewards",
        "scale_rewards",
        "group",
        since="0.16.0",
        until="0.22.0",
        values=(("group", True), ("none", False)),
    ),
    _row("train.scale_rewards", "scale_rewards", "group", since="0.22.0", values=_SCALES),
    _row("train.importance_level", "importance_sampling_level", "token", since="0.20.0"),
    _row("train.mask_truncated", "mask_truncated_completions", False, since="0.17.0"),
    _row("train.entropy_coefficient", "entropy_coef", 0.0, since="1.8.0"),
    _row("train.top_entropy_quantile", "top_entropy_quantile", 1.0, since="0.20.0"),
    _row("train.max_steps", "max_steps", -1),
    _row("reward.weights", "reward_weights", None, since="0.15.0"),
    _row("sync.gather_for_generation", "ds3_gather_for_generation", True, since="0.15.0"),
    _row("sync.ref_model", "sync_ref_model", False, since="0.15.0"),
    _row("eval.steps", "eval_steps", None),
    _row("log.completions", "log_completions", False, since="0.15.0"),
    _row("checkpoint.save_steps", "save_steps", 500),
    _row("checkpoint.save_only_model", "save_only_model", False),
    _row("checkpoint.save_total_limit", "save_total_limit", None),
    _row("run.collective_timeout_s", "ddp_timeout", 1800),
)
