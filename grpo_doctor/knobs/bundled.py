"""The bundled trainer's options. Defaults are those of a run with `--model`."""

from __future__ import annotations

from typing import Any

from grpo_doctor.knobs.model import Spelling

_FIRST = "0.1.0"


def _option(knob: str, key: str, default: Any) -> Spelling:
    return Spelling(knob, key, _FIRST, defaults=((_FIRST, default),))


SPELLINGS: tuple[Spelling, ...] = (
    _option("offload.model", "offload_model", False),
    _option("offload.optimizer", "offload_optimizer", False),
    _option("offload.gc_collect", "gc_collect_after_offload", False),
    _option("deepspeed.preset", "deepspeed", None),
    _option("vllm.use", "use_vllm", False),
    _option("vllm.mode", "vllm_mode", "colocate"),
    _option("vllm.gpu_memory_utilization", "vllm_gpu_memory_utilization", 0.9),
    _option("vllm.tensor_parallel_size", "vllm_tensor_parallel_size", 1),
    _option("vllm.max_model_len", "vllm_max_model_len", None),
    _option("vllm.max_num_seqs", "vllm_max_num_seqs", None),
    _option("vllm.enforce_eager", "vllm_enforce_eager", False),
    _option("vllm.enable_prefix_caching", "vllm_enable_prefix_caching", True),
    _option("vllm.enable_lora", "vllm_enable_lora", False),
    _option("vllm.sleep_level", "sleep_level", 0),
    _option("sync.move_model_batches", "move_model_batches", None),
    _option("data.max_pixels", "max_pixels", None),
    _option("train.freeze_vit", "freeze_vit", True),
    _option("dataload.num_workers", "dataloader_num_workers", 1),
    _option("dataload.prefetch_factor", "dataloader_prefetch_factor", 2),
    _option("rollout.num_generations", "num_generations", 8),
    _option("rollout.max_completion_length", "max_completion_length", 512),
    _option("rollout.steps_per_generation", "steps_per_generation", None),
    _option("train.micro_batch", "per_device_train_batch_size", 1),
    _option("train.grad_accumulation", "gradient_accumulation_steps", 1),
    _option("train.gradient_checkpointing", "gradient_checkpointing", True),
    _option("train.type", "train_type", "lora"),
    _option("sync.gather_for_generation", "ds3_gather_for_generation", True),
    _option("checkpoint.save_steps", "save_steps", 500),
    _option("checkpoint.save_only_model", "save_only_model", False),
    _option("run.collective_timeout_s", "ddp_timeout", 1800),
)
