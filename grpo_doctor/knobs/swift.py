"""ms-swift's options (`swift rlhf --rlhf_type grpo`), read from the argument classes of 3.2 to 4.6.

An unknown flag ends a launch there, so names carry the versions that have them; `until` is the
first version without.
"""

from __future__ import annotations

from typing import Any

from grpo_doctor.knobs.model import Spelling

_FIRST = "3.2.0"  # the oldest version that was read


def _option(
    knob: str,
    key: str,
    default: Any,
    *later: tuple[str, Any],
    since: str = _FIRST,
    until: str | None = None,
) -> Spelling:
    return Spelling(knob, key, since, until, ((since, default), *later))


SPELLINGS: tuple[Spelling, ...] = (
    _option("offload.model", "offload_model", False, since="3.3.0"),
    _option("offload.optimizer", "offload_optimizer", False, since="3.3.0"),
    _option("offload.gc_collect", "gc_collect_after_offload", False, since="3.3.0", until="3.10.0"),
    _option("deepspeed.preset", "deepspeed", None),
    _option("vllm.use", "use_vllm", False),
    _option("vllm.mode", "vllm_mode", "colocate", ("3.12.0", None), since="3.5.0"),
    _option("vllm.gpu_memory_utilization", "vllm_gpu_memory_utilization", 0.9),
    _option("vllm.tensor_parallel_size", "tensor_parallel_size", 1, until="3.5.0"),
    _option("vllm.tensor_parallel_size", "vllm_tensor_parallel_size", 1, since="3.5.0"),
    _option("vllm.max_model_len", "vllm_max_model_len", None),
    _option("vllm.enforce_eager", "vllm_enforce_eager", False),
    _option("vllm.enable_prefix_caching", "vllm_enable_prefix_caching", True),
    _option("vllm.enable_lora", "vllm_enable_lora", False, since="3.10.0"),
    _option("vllm.sleep_level", "sleep_level", 0, since="3.3.0"),
    # The default is None, which the trainer reads as 1.
    _option("dataload.num_workers", "dataloader_num_workers", 1, since="3.3.0"),
    _option("dataload.prefetch_factor", "dataloader_prefetch_factor", 2),
    _option(
        "dataload.persistent_workers",
        "dataloader_persistent_workers",
        False,
        ("4.6.0", True),
        since="3.7.0",
    ),
    _option("rollout.num_generations", "num_generations", 8),
    _option("rollout.max_completion_length", "max_completion_length", 512),
    _option("rollout.steps_per_generation", "steps_per_generation", None, since="3.5.0"),
    _option("train.micro_batch", "per_device_train_batch_size", 1),
    _option("train.grad_accumulation", "gradient_accumulation_steps", 1),
    _option("train.gradient_checkpointing", "gradient_checkpointing", True),
    _option("train.type", "train_type", "lora", until="4.0.0"),
    _option("train.type", "tuner_type", "lora", since="4.0.0"),
    _option("train.padding_free", "padding_free", False, since="3.5.0"),
    _option("sync.move_model_batches", "move_model_batches", None, since="3.3.0"),
    _option("sync.gather_for_generation", "ds3_gather_for_generation", True),
    _option("checkpoint.save_steps", "save_steps", 500),
    _option("checkpoint.save_only_model", "save_only_model", False),
    _option("run.collective_timeout_s", "ddp_timeout", 1800, ("3.5.0", 18_000_000)),
)
