"""The bundled trainer's options. Defaults are those of a run with `--model`."""

from __future__ import annotations

from typing import Any

from grpo_doctor.knobs.model import Spelling

_FIRST = "0.1.0"
_NO_VLLM_YET = (
    "this version of the bundled trainer rolls out with transformers only; "
    "vLLM rollouts come with the next release"
)


def _option(knob: str, key: str, default: Any) -> Spelling:
    return Spelling(knob, key, _FIRST, defaults=((_FIRST, default),))


SPELLINGS: tuple[Spelling, ...] = (
    _option("offload.model", "offload_model", False),
    _option("offload.optimizer", "offload_optimizer", False),
    _option("offload.gc_collect", "gc_collect_after_offload", False),
    _option("deepspeed.preset", "deepspeed", None),
    Spelling(
        "vllm.use",
        "use_vllm",
        _FIRST,
        defaults=((_FIRST, False),),
        refused=(True,),
        refusal=_NO_VLLM_YET,
    ),
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
