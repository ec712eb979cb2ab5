"""What a checkpoint takes on disk."""

from __future__ import annotations

from grpo_doctor.memory.setup import Setup, share_of


def checkpoint_bytes(setup: Setup, *, only_model: bool) -> int:
    """Bytes of one checkpoint of all ranks.

    Full training saves the weights in 16 bits and, unless `only_model`, the optimizer: its two
    moments in the weights' type, and under DeepSpeed the float32 master weights and moments.
    Adapters alone are saved with LoRA.
    """
    share = share_of(setup)
    trained = share.trained + share.trained_experts
    if setup.method == "full":
        trained = setup.model.parameters
    each = 4 if setup.trained_dtype_bytes == 4 else 2
    weights = each * trained
    if only_model:
        return weights
    optimizer = 12 if setup.engine in ("deepspeed", "megatron") else 2 * each
    return weights + optimizer * trained
