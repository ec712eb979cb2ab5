"""Which options need less memory, by the phase in which it ran out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from grpo_doctor_trainer.config import TrainerConfig


def advice(where: str, config: TrainerConfig) -> list[str]:
    """Gives options that help in a phase and are not set already, the cheapest first."""
    lines = _BY_PHASE.get(where, _weights)(config)
    return lines or ["a smaller --model, or more ranks"]


def _train(config: TrainerConfig) -> list[str]:
    lines = _smaller_passes(config)
    if not config.gradient_checkpointing:
        lines.append("--gradient_checkpointing true: recomputes activations, a third more compute")
    lines.append(f"--max_completion_length below {config.max_completion_length}")
    return lines + _weights(config)[:1]


def _logprob(config: TrainerConfig) -> list[str]:
    lines = _smaller_passes(config)
    if config.beta > 0 and config.train_type == "full":
        lines.append("--beta 0: no reference model")
    return lines


def _rollout(config: TrainerConfig) -> list[str]:
    if config.colocated:
        share = config.vllm_gpu_memory_utilization
        return [
            (
                f"--vllm_gpu_memory_utilization below {share:g}, if training holds the memory, or "
                "above, if the engine says it has no room for its KV cache"
            ),
            "--vllm_max_num_seqs or --vllm_max_model_len lower: a smaller KV cache",
            *_out_of_the_way(config),
        ]
    if config.use_vllm:
        return _out_of_the_way(config)
    lines = [
        (
            f"fewer completions at once: {config.completions_per_rank} per rank now; lower "
            "--steps_per_generation, --gradient_accumulation_steps or --per_device_train_batch_size"
        ),
        f"--max_completion_length below {config.max_completion_length}",
    ]
    return lines + _out_of_the_way(config)


def _optimizer(config: TrainerConfig) -> list[str]:
    lines = _weights(config)
    if config.train_type == "full":
        lines.append("--train_type lora: optimizer state for the adapters alone")
    return lines


def _sync(config: TrainerConfig) -> list[str]:
    return [
        f"--move_model_batches above {config.move_model_batches or 1}: fewer weights at once",
        f"--vllm_gpu_memory_utilization below {config.vllm_gpu_memory_utilization:g}",
        *_out_of_the_way(config),
    ]


def _offload(config: TrainerConfig) -> list[str]:
    lines = []
    if config.use_vllm and config.sleep_level < 2:
        lines.append(f"--sleep_level {config.sleep_level + 1}: the engine gives memory back")
    if not config.gc_collect_after_offload:
        lines.append("--gc_collect_after_offload true: hands freed memory back at once")
    lines.append("no --offload_model or --offload_optimizer, if it is the host that is full")
    return lines


def _checkpoint(config: TrainerConfig) -> list[str]:
    return [] if config.save_only_model else ["--save_only_model true: gathers less at once"]


def _host(config: TrainerConfig) -> list[str]:
    return [
        (
            f"--dataloader_num_workers below {config.dataloader_num_workers} or "
            f"--dataloader_prefetch_factor below {config.dataloader_prefetch_factor}"
        ),
        f"--reward_num_workers below {config.reward_num_workers}",
    ]


def _smaller_passes(config: TrainerConfig) -> list[str]:
    size, passes = config.per_device_train_batch_size, config.gradient_accumulation_steps
    if size == 1:
        return []
    return [
        (
            f"--per_device_train_batch_size {size // 2} "
            f"--gradient_accumulation_steps {passes * 2}: the same step in smaller passes"
        )
    ]


def _weights(config: TrainerConfig) -> list[str]:
    lines = []
    if config.deepspeed in {None, "zero0", "zero1"}:
        lines.append("--deepspeed zero2: each rank keeps a part of gradients and optimizer state")
    if config.deepspeed in {None, "zero0", "zero1", "zero2", "zero2_offload"}:
        lines.append("--deepspeed zero3: of the weights as well")
    if config.deepspeed not in {"zero2_offload", "zero3_offload"}:
        lines.append("--deepspeed zero3_offload: both in host memory")
    if config.torch_dtype not in {"bfloat16", "float16"}:
        lines.append("--torch_dtype bfloat16: half the bytes per weight")
    return lines


def _out_of_the_way(config: TrainerConfig) -> list[str]:
    lines = []
    if not config.offload_optimizer:
        lines.append("--offload_optimizer true: its state is in host memory during the rollout")
    if not config.offload_model:
        lines.append("--offload_model true: the same for models the rollout does not need")
    return lines


_BY_PHASE: dict[str, Callable[[TrainerConfig], list[str]]] = {
    "init": _weights,
    "dataload": _host,
    "reward": _host,
    "rollout": _rollout,
    "logprob": _logprob,
    "train": _train,
    "optimizer": _optimizer,
    "sync": _sync,
    "offload": _offload,
    "checkpoint": _checkpoint,
    "eval": _rollout,
}
