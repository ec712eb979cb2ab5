"""What other estimators say of a setup, by their published formulas.

None of them knows LoRA, so all parameters count as trained; accelerate's alone gets the benefit of
its row for loading there.
"""

from __future__ import annotations

from collections.abc import Callable

from grpo_doctor.memory.setup import Setup, share_of


def deepspeed(setup: Setup) -> float:
    """`estimate_zero2_model_states_mem_needs` and `estimate_zero3_...`: model states alone."""
    parameters = setup.model.parameters
    ranks = max(1, setup.ranks)
    if setup.zero_stage == 3 or setup.engine == "fsdp":
        largest = max(setup.model.embedding_parameters, setup.model.layer_parameters)
        if setup.zero_offload_optimizer:
            return 4 * largest + 2 * parameters / ranks
        return 4 * largest + 18 * parameters / ranks
    if setup.zero_offload_optimizer:
        return 2 * parameters
    return 2 * parameters + 18 * parameters / ranks


def accelerate(setup: Setup) -> float:
    """`accelerate estimate-memory`: four times the weights for Adam, or the weights alone."""
    weights = 2 * setup.model.parameters
    return weights if setup.method == "lora" else 4 * weights


def transformer_math(setup: Setup) -> float:
    """blog.eleuther.ai/transformer-math: states by ZeRO stage, and activations by recomputation."""
    share = share_of(setup)
    parameters = share.trained + share.trained_experts + share.frozen
    ranks = setup.data_parallel
    stage = 3 if setup.engine == "fsdp" else setup.zero_stage
    weights = 2 * parameters / (ranks if stage == 3 else 1)
    gradients = 2 * parameters / (ranks if stage >= 2 else 1)
    optimizer = 12 * parameters / (ranks if stage >= 1 else 1)
    model = setup.model
    tokens = setup.micro_batch * (setup.prompt_tokens + setup.completion_tokens)
    row = tokens / setup.micro_batch
    per_layer = tokens * model.hidden / setup.tensor_parallel
    if setup.recompute == "full":
        activations = 2 * per_layer * model.layers
    elif setup.recompute == "selective":
        activations = 34 * per_layer * model.layers
    else:
        activations = (34 + 5 * model.heads * row / model.hidden) * per_layer * model.layers
    return weights + gradients + optimizer + activations


PEERS: dict[str, Callable[[Setup], float]] = {
    "DeepSpeed": deepspeed,
    "accelerate": accelerate,
    "transformer-math": transformer_math,
}
