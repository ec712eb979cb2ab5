"""verl's options (`verl.trainer.main_ppo`), read from the Hydra configurations of 0.4 to 0.9.

Hydra refuses a key that the configuration lacks, so names carry the versions that have them. verl
trains with FSDP by default and has no DeepSpeed; its offload acts around each phase of a step.
"""

from __future__ import annotations

from grpo_doctor.knobs.model import Gate, Spelling
from grpo_doctor.knobs.rows import Rows

_row = Rows("0.4.0")
_ACTOR = "actor_rollout_ref.actor."
_MODEL = "actor_rollout_ref.model."
_ROLLOUT = "actor_rollout_ref.rollout."
_REF = "actor_rollout_ref.ref."
_CORRECTION = "algorithm.rollout_correction."
_FILTER = "algorithm.filter_groups."
_SAVED = (
    (True, "[model]"),
    (False, "[model,optimizer,extra]"),
    (True, "[model,extra]"),
    (True, "[hf_model]"),
    (True, "[model,hf_model]"),
    (False, "[model,optimizer]"),
    (False, "[model,optimizer,extra,hf_model]"),
)
_MEANS = (
    ("dapo", "token-mean"),
    ("grpo", "seq-mean-token-mean"),
    ("dr_grpo", "seq-mean-token-sum-norm"),
)
_DTYPES = (
    ("float32", "fp32"),
    ("bfloat16", "bf16"),
    ("bfloat16", "bfloat16"),
    ("float32", "float32"),
)
_SLEEPS_1 = ((0, False), (1, True), (2, True))
_SLEEPS_2 = ((0, False), (2, True), (1, True))

SPELLINGS: tuple[Spelling, ...] = (
    _row("model.name", _MODEL + "path", "~/models/deepseek-llm-7b-chat"),
    _row("parallel.strategy", _ACTOR + "strategy", "fsdp"),
    _row("parallel.context", _ACTOR + "ulysses_sequence_parallel_size", 1),
    _row("parallel.fsdp_size", _ACTOR + "fsdp_config.fsdp_size", -1),
    _row("parallel.reshard", _ACTOR + "fsdp_config.reshard_after_forward", True),
    _row("parallel.fsdp_offload", _ACTOR + "fsdp_config.offload_policy", False),
    _row("run.nodes", "trainer.nnodes", 1),
    _row("run.gpus_per_node", "trainer.n_gpus_per_node", 8),
    _row("offload.model", _ACTOR + "fsdp_config.param_offload", False),
    _row("offload.optimizer", _ACTOR + "fsdp_config.optimizer_offload", False),
    _row("offload.reference", _REF + "fsdp_config.param_offload", False),
    _row("vllm.use", _ROLLOUT + "name", True, ("0.6.0", None), values=((True, "vllm"),)),
    _row("rollout.engine", _ROLLOUT + "name", "vllm", ("0.6.0", None)),
    _row("vllm.gpu_memory_utilization", _ROLLOUT + "gpu_memory_utilization", 0.5),
    _row("vllm.tensor_parallel_size", _ROLLOUT + "tensor_model_parallel_size", 2),
    _row("vllm.data_parallel_size", _ROLLOUT + "data_parallel_size", 1, since="0.6.0"),
    _row("vllm.max_model_len", _ROLLOUT + "max_model_len", None),
    _row("vllm.max_num_seqs", _ROLLOUT + "max_num_seqs", 1024, ("0.9.0", 256)),
    _row("vllm.max_num_batched_tokens", _ROLLOUT + "max_num_batched_tokens", 8192),
    _row("vllm.enable_chunked_prefill", _ROLLOUT + "enable_chunked_prefill", True),
    _row("vllm.enforce_eager", _ROLLOUT + "enforce_eager", True, ("0.6.0", False)),
    _row("vllm.enable_prefix_caching", _ROLLOUT + "enable_prefix_caching", True, since="0.6.0"),
    _row("vllm.sleep_level", _ROLLOUT + "free_cache_engine", 1, until="0.6.0", values=_SLEEPS_1),
    _row("vllm.sleep_level", _ROLLOUT + "free_cache_engine", 2, since="0.6.0", values=_SLEEPS_2),
    _row("vllm.swap_space", _ROLLOUT + "engine_kwargs.vllm.swap_space", None, until="0.6.0"),
    _row("vllm.disable_log_stats", _ROLLOUT + "disable_log_stats", True),
    _row(
        "vllm.pipeline_parallel_size", _ROLLOUT + "pipeline_model_parallel_size", 1, since="0.6.0"
    ),
    _row("vllm.quantization", _ROLLOUT + "quantization", None, since="0.7.0"),
    _row("vllm.dtype", _ROLLOUT + "dtype", "bfloat16"),
    # 0.4 reads the key and lacks it in its configuration.
    _row("dataload.num_workers", "data.dataloader_num_workers", 8, until="0.5.0", new=True),
    _row("dataload.num_workers", "data.dataloader_num_workers", 8, since="0.5.0"),
    _row("data.max_length", "data.max_prompt_length", 512),
    _row("data.truncation", "data.truncation", "error"),
    _row("data.filter_overlong", "data.filter_overlong_prompts", False),
    _row("data.num_proc", "data.filter_overlong_prompts_workers", 1),
    _row("rollout.num_generations", _ROLLOUT + "n", 1),
    _row("rollout.prompts", "data.train_batch_size", 1024),
    _row("rollout.max_completion_length", "data.max_response_length", 512),
    _row("rollout.temperature", _ROLLOUT + "temperature", 1.0),
    _row("rollout.top_p", _ROLLOUT + "top_p", 1.0),
    _row("rollout.top_k", _ROLLOUT + "top_k", -1),
    _row(
        "rollout.async",
        "trainer.v1.trainer_mode",
        False,
        since="0.9.0",
        values=((False, "sync"), (True, "colocate_async"), (True, "separate_async")),
    ),
    # 0.9.0 filters by a metric that the reward function must name, 0.9.1 by the reward itself.
    _row("rollout.dynamic_sampling", _FILTER + "enable", False, since="0.9.1"),
    _row("rollout.max_resample", _FILTER + "max_num_gen_batches", 0, since="0.9.0"),
    _row(
        "rollout.importance_correction",
        "algorithm.rollout_is",
        False,
        since="0.6.0",
        until="0.6.1",
        beside=(("algorithm.rollout_is_threshold", 2.0),),
    ),
    _row(
        "rollout.importance_correction",
        _CORRECTION + "rollout_is",
        False,
        since="0.6.1",
        values=((False, None), (True, "token"), (True, "sequence")),
    ),
    _row(
        "rollout.importance_mode",
        _CORRECTION + "rollout_is",
        "none",
        since="0.6.1",
        values=(("none", None), ("token_truncate", "token"), ("sequence_truncate", "sequence")),
    ),
    _row("rollout.importance_cap", _CORRECTION + "rollout_is_threshold", 2.0, since="0.6.1"),
    _row("train.micro_batch", _ACTOR + "ppo_micro_batch_size_per_gpu", None),
    _row("train.prompts_per_step", _ACTOR + "ppo_mini_batch_size", 256),
    _row("train.logprob_micro_batch", _ROLLOUT + "log_prob_micro_batch_size_per_gpu", None),
    _row("train.dynamic_batch", _ACTOR + "use_dynamic_bsz", False),
    _row("train.max_tokens_per_gpu", _ACTOR + "ppo_max_token_len_per_gpu", 16384),
    _row("train.gradient_checkpointing", _MODEL + "enable_gradient_checkpointing", True),
    _row("train.activation_offload", _MODEL + "enable_activation_offload", False),
    _row("train.num_iterations", _ACTOR + "ppo_epochs", 1),
    _row("train.use_liger", _MODEL + "use_fused_kernels", False),
    _row("train.freeze_vit", _ACTOR + "freeze_vision_tower", False, since="0.6.0"),
    _row("train.lora_rank", _MODEL + "lora_rank", 0),
    _row("train.lora_alpha", _MODEL + "lora_alpha", 16),
    _row("train.lora_targets", _MODEL + "target_modules", "all-linear"),
    _row("train.share_prompts", _ACTOR + "use_prefix_grouper", False, since="0.7.1"),
    _row("train.padding_free", _MODEL + "use_remove_padding", False, ("0.7.0", True)),
    _row(
        "train.dtype", _ACTOR + "fsdp_config.model_dtype", "float32", since="0.6.0", values=_DTYPES
    ),
    _row("train.optimizer", _ACTOR + "optim.optimizer", "AdamW", since="0.6.1"),
    _row("train.learning_rate", _ACTOR + "optim.lr", 1e-6),
    _row("train.lr_scheduler", _ACTOR + "optim.warmup_style", "constant", until="0.6.0"),
    _row("train.lr_scheduler", _ACTOR + "optim.lr_scheduler_type", "constant", since="0.6.0"),
    _row("train.warmup_steps", _ACTOR + "optim.lr_warmup_steps", -1),
    _row("train.weight_decay", _ACTOR + "optim.weight_decay", 0.01),
    # The engines that came with 0.8 read the optimizer's own key; older workers the actor's.
    _row("train.max_grad_norm", _ACTOR + "grad_clip", 1.0, until="0.8.0"),
    _row("train.max_grad_norm", _ACTOR + "optim.clip_grad", 1.0, since="0.8.0"),
    _row(
        "train.beta",
        _ACTOR + "kl_loss_coef",
        0.0,
        gate=Gate(_ACTOR + "use_kl_loss", on=False, value=0.001),
    ),
    _row("train.epsilon", _ACTOR + "clip_ratio_low", 0.2),
    _row("train.epsilon_high", _ACTOR + "clip_ratio_high", 0.2),
    _row("train.delta", _ACTOR + "clip_ratio_c", 3.0),
    _row("train.loss_type", _ACTOR + "loss_agg_mode", "dapo", values=_MEANS),
    _row(
        "train.scale_rewards",
        "algorithm.norm_adv_by_std_in_grpo",
        "group",
        values=(("group", True), ("none", False)),
    ),
    _row(
        "train.importance_level",
        _ACTOR + "policy_loss.loss_mode",
        "token",
        since="0.6.0",
        values=(("token", "vanilla"), ("sequence", "gspo")),
    ),
    _row("train.entropy_coefficient", _ACTOR + "entropy_coeff", 0.0),
    _row("train.max_steps", "trainer.total_training_steps", None),
    _row("reward.num_workers", "reward_model.num_workers", 1, since="0.7.0", until="0.7.1"),
    _row("reward.num_workers", "reward.num_workers", 8, since="0.7.1"),
    _row("reward.async", "reward_model.launch_reward_fn_async", False, until="0.7.1"),
    _row(
        "sync.bucket_mb",
        _ROLLOUT + "update_weights_bucket_megabytes",
        512,
        since="0.5.0",
        until="0.7.1",
    ),
    _row(
        "sync.bucket_mb",
        _ROLLOUT + "checkpoint_engine.update_weights_bucket_megabytes",
        2048,
        since="0.7.1",
    ),
    _row("sync.layered", _ROLLOUT + "layered_summon", False),
    _row("eval.steps", "trainer.test_freq", -1),
    _row("checkpoint.save_steps", "trainer.save_freq", -1),
    _row(
        "checkpoint.save_only_model",
        _ACTOR + "checkpoint.contents",
        False,
        until="0.4.1",
        values=_SAVED,
    ),
    _row(
        "checkpoint.save_only_model",
        _ACTOR + "checkpoint.save_contents",
        False,
        since="0.4.1",
        values=_SAVED,
    ),
    _row("checkpoint.save_total_limit", "trainer.max_actor_ckpt_to_keep", None),
    _row("checkpoint.directory", "trainer.default_local_dir", None),
    _row("run.collective_timeout_s", "actor_rollout_ref.nccl_timeout", 600, since="0.6.0"),
)
