"""Count bytes per token of a decoder layer: kept for the backward pass, in it, or gradient-free.

Read off the tensors that autograd saves, for the code of transformers, PEFT and Megatron; all in
bytes. h is the width, q and k those of queries and keys, i that of the MLP.
"""

from __future__ import annotations

from grpo_doctor.memory.models import ModelShape
from grpo_doctor.memory.setup import Setup

SOURCE = "transformers modeling_qwen2; peft tuners/lora/layer.py"
_FOUR_NORMS = 4


def computes_in_float32(setup: Setup) -> bool:
    """Float32 weights under autocast, so that the residual stream is in float32 too."""
    plain = setup.engine in ("torch", "device_map")
    return plain and setup.method == "full" and setup.trained_dtype_bytes == 4


def kept_bytes(setup: Setup) -> float:
    """What the backward pass needs of a layer."""
    model = setup.model
    hidden, query, key = model.hidden, model.query_width, model.key_width
    if setup.engine == "megatron":
        # With fused norms, rotations and SwiGLU their inputs alone are kept, in 16 bits.
        return 2 * (3 * hidden + 2 * (query + 2 * key) + query + _mlp(model, 3))
    padded = setup.micro_batch > 1 and not (setup.padding_free or setup.packing)
    masked = padded and setup.attention == "fused"
    repeated = query if masked else key  # a mask makes SDPA repeat keys and values
    shared = 4 * repeated + 4 * model.heads
    if model.query_key_norm:
        shared += 6 * (query + key)
    if model.experts:
        shared += 4 * model.experts.count
    if setup.method == "lora":
        return shared + _kept_with_adapters(setup)
    norms = 36 if model.norms_per_layer == _FOUR_NORMS else 16
    if computes_in_float32(setup):
        norms = 26  # each linear layer keeps its own copy of its input in 16 bits
    return shared + norms * hidden + 4 * query + 2 * _mlp(model, 4)


def _kept_with_adapters(setup: Setup) -> float:
    """Frozen norms keep one copy, frozen linear layers nothing; adapters in float32 cast inputs."""
    model = setup.model
    hidden, query = model.hidden, model.query_width
    if setup.engine == "deepspeed":
        return 12 * hidden + 4 * query + 2 * _mlp(model, 4) + 14 * setup.lora_rank
    if setup.lora_targets == "attention" and not model.experts:
        return 12 * hidden + 4 * query + 2 * _mlp(model, 3) + 4 * setup.lora_rank
    return 18 * hidden + 6 * query + 2 * _mlp(model, 4) + 14 * setup.lora_rank


def backward_bytes(setup: Setup) -> float:
    """Return what a layer's backward pass has at once in addition to what was kept."""
    model = setup.model
    hidden = model.hidden
    if setup.engine == "megatron":
        return 0.0
    if model.experts:
        active = model.experts.active
        return 4 * hidden * (1 + active) + 2 * active * model.experts.intermediate
    if setup.method == "lora":
        return 4 * hidden + 6 * model.intermediate
    if computes_in_float32(setup):
        return 2 * model.intermediate
    return (2 if model.norms_per_layer == _FOUR_NORMS else 4) * hidden + 2 * model.intermediate


def scored_bytes(setup: Setup) -> float:
    """What a layer takes in a pass without gradients."""
    model = setup.model
    if setup.engine == "megatron":
        return kept_bytes(setup) / 2
    if setup.method == "lora" and (setup.lora_targets == "all-linear" or model.experts):
        return 12 * model.hidden + 2 * _mlp(model, 4)
    return (19 if computes_in_float32(setup) else 8) * model.hidden + 2 * _mlp(model, 3)


def selective_bytes(setup: Setup) -> float:
    """Where outputs of attention and of every other matrix product are kept (torchtitan)."""
    model = setup.model
    products = model.query_width + 2 * model.key_width + 2 * model.hidden + 2 * model.intermediate
    return 2 * (products / 2 + model.hidden + model.query_width)


def _mlp(model: ModelShape, results: int) -> float:
    """Elements of an MLP's `results` intermediate results, or of those of its active experts."""
    experts = model.experts
    if experts is None:
        return float(results * model.intermediate)
    inner = results * (experts.active * experts.intermediate + experts.shared_intermediate)
    return float(inner + 2 * experts.active * model.hidden)
