"""Sampling, and what makes room for it."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor_trainer.config.option import option


@dataclass(frozen=True)
class RolloutOptions:
    """Sampling, and what makes room for it."""

    num_generations: int = option(
        8, "rollout", "completions per prompt, the group of GRPO", embedded=16
    )
    max_completion_length: int = option(512, "rollout", "longest completion in tokens", embedded=8)
    temperature: float = option(0.9, "rollout", "sampling temperature", embedded=1.0)
    top_p: float = option(1.0, "rollout", "nucleus sampling; 1: off")
    top_k: int = option(-1, "rollout", "sample from the k likeliest tokens; -1: from all")
    repetition_penalty: float = option(1.0, "rollout", "above 1 makes repetitions unlikelier")
    ds3_gather_for_generation: bool = option(
        True,
        "rollout",
        "ZeRO-3: gather all weights once per rollout; false: layer by layer for each token, slow, "
        "for models that do not fit",
    )
    offload_model: bool = option(
        False, "rollout", "move weights the rollout does not need to host memory while it runs"
    )
    offload_optimizer: bool = option(
        False, "rollout", "move the optimizer state to host memory while the rollout runs"
    )
    gc_collect_after_offload: bool = option(
        False, "rollout", "collect garbage and empty the CUDA cache after each offload"
    )
