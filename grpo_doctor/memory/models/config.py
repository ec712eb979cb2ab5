"""A model's config.json, or what the shipped table has of it, as a shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grpo_doctor.errors import GrpoDoctorError
from grpo_doctor.memory.models.shape import Experts, LatentAttention, ModelShape, Vision

QKV_BIAS = frozenset(
    {"qwen", "qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen2_5_omni", "chatglm"}
)
QUERY_KEY_NORM = frozenset(
    {"qwen3", "qwen3_moe", "qwen3_vl", "qwen3_vl_moe", "gemma3", "gemma3_text"}
)
FOUR_NORMS = frozenset({"gemma2", "gemma3", "gemma3_text"})
TIED_BY_DEFAULT = frozenset({"gemma", "gemma2", "gemma3", "gemma3_text"})
_LAYERS = frozenset({"attention", "full_attention", "sliding_attention", "chunked_attention"})
_STATE_SPACE = ("mamba", "ssm", "linear_num_", "hybrid_")
"""How the keys of models with other layers than these begin."""


class UnknownShapeError(GrpoDoctorError):
    """A configuration that does not say what its model is made of."""


def shape_of(name: str, config: Mapping[str, Any], source: str) -> ModelShape:
    """The shape that a config.json describes.

    Raises:
        UnknownShapeError: sizes that every decoder has are missing, or layers are of another kind.
    """
    text = _text_config(config)
    kind = str(text.get("model_type") or config.get("model_type") or "")
    missing = [key for key in ("hidden_size", "num_hidden_layers", "vocab_size") if key not in text]
    if missing:
        raise UnknownShapeError(
            f"{source}: no {', '.join(missing)} in this config.json; "
            "name a local folder with the model's own config.json"
        )
    try:
        return _shape(name, config, text, kind, source)
    except (KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError) as problem:
        raise UnknownShapeError(
            f"{source}: sizes in this config.json can't be understood ({problem!r}); "
            "name a folder with the model's own config.json"
        ) from problem


def _shape(
    name: str, config: Mapping[str, Any], text: Mapping[str, Any], kind: str, source: str
) -> ModelShape:
    others = set(text.get("layer_types") or ()) - _LAYERS
    others |= {key for key in text if key.startswith(_STATE_SPACE) and text[key]}
    if others:
        named = ", ".join(sorted(map(str, others))[:3])
        raise UnknownShapeError(f"{source}: layers other than attention are not modeled ({named})")
    hidden, heads = int(text["hidden_size"]), int(text.get("num_attention_heads") or 1)
    layers = int(text["num_hidden_layers"])
    if min(hidden, heads, layers, int(text["vocab_size"])) < 1:
        raise ValueError("sizes below 1")
    saying = [where for where in (config, text) if "tie_word_embeddings" in where]
    positions = text.get("max_position_embeddings")
    return ModelShape(
        name=name,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=int(text.get("num_key_value_heads") or heads),
        head_dim=int(text.get("head_dim") or hidden // heads),
        intermediate=int(text.get("intermediate_size") or 4 * hidden),
        vocabulary=int(text["vocab_size"]),
        tied=bool(saying[0]["tie_word_embeddings"]) if saying else kind in TIED_BY_DEFAULT,
        source=source,
        qkv_bias=kind in QKV_BIAS or bool(text.get("attention_bias")),
        output_bias=bool(text.get("attention_bias", False)) and kind not in QKV_BIAS,
        query_key_norm=kind in QUERY_KEY_NORM,
        norms_per_layer=4 if kind in FOUR_NORMS else 2,
        capped_logits=bool(text.get("final_logit_softcapping", kind == "gemma2")),
        max_positions=int(positions) if isinstance(positions, (int, float)) else None,
        experts=_experts(text, layers),
        latent=_latent(text),
        vision=_vision(config, kind),
        bits=_bits(config.get("quantization_config")),
        other_parameters=int(config.get("other_parameters") or 0),
    )


def _bits(quantization: Any) -> int:
    if not isinstance(quantization, Mapping):
        return 16
    usual = 8 if "fp8" in str(quantization.get("quant_method")) else 16
    return int(quantization.get("bits") or usual)


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    thinker = config.get("thinker_config")
    if isinstance(thinker, Mapping):
        return _text_config(thinker)
    for key in ("text_config", "llm_config", "language_config"):
        nested = config.get(key)
        if isinstance(nested, Mapping) and "hidden_size" in nested:
            return nested
    return config


def _experts(text: Mapping[str, Any], layers: int) -> Experts | None:
    count = text.get("num_experts") or text.get("n_routed_experts") or text.get("num_local_experts")
    if not count:
        return None
    step = int(text.get("decoder_sparse_step") or 1)
    dense = int(text.get("first_k_dense_replace") or 0)
    intermediate = int(text.get("moe_intermediate_size") or text.get("intermediate_size") or 0)
    return Experts(
        layers=(layers - dense) // step,
        count=int(count),
        active=int(text.get("num_experts_per_tok") or 1),
        intermediate=intermediate,
        shared_intermediate=int(text.get("shared_expert_intermediate_size") or 0)
        or int(text.get("n_shared_experts") or 0) * intermediate,
        shared_gate=bool(text.get("shared_expert_intermediate_size")),
    )


def _latent(text: Mapping[str, Any]) -> LatentAttention | None:
    if not text.get("kv_lora_rank"):
        return None
    return LatentAttention(
        query_rank=int(text.get("q_lora_rank") or 0),
        cache_rank=int(text["kv_lora_rank"]),
        plain_dim=int(text["qk_nope_head_dim"]),
        rotary_dim=int(text["qk_rope_head_dim"]),
        value_dim=int(text["v_head_dim"]),
    )


def _vision(config: Mapping[str, Any], kind: str) -> Vision | None:
    thinker = config.get("thinker_config")
    config = thinker if isinstance(thinker, Mapping) else config
    tower = config.get("vision_config")
    if not isinstance(tower, Mapping):
        return None
    family = str(config.get("model_type") or kind)
    patch = int(tower.get("patch_size") or 14)
    if family.startswith("qwen2_vl"):
        width = int(tower["embed_dim"])
        ratio = int(tower.get("mlp_ratio") or 4)
        return Vision("qwen2_vl", width, int(tower["depth"]), width * ratio, patch, 2, 0, 2)
    width = int(tower["hidden_size"])
    layers = int(tower.get("depth") or tower.get("num_hidden_layers") or 0)
    inner = int(tower.get("intermediate_size") or 4 * width)
    if family.startswith("qwen2_5"):
        return Vision("qwen2_5_vl", width, layers, inner, patch, 2, 0, 2)
    if family.startswith(("qwen3_vl", "qwen3_omni")):
        taps = len(tower.get("deepstack_visual_indexes") or ())
        positions = int(tower.get("num_position_embeddings") or 0)
        return Vision("qwen3_vl", width, layers, inner, patch, 2, positions, 2, taps)
    side = int(tower.get("image_size") or 448) // patch
    if family.startswith("internvl"):
        return Vision("intern_vit", width, layers, inner, patch, 2, side * side + 1)
    return Vision("siglip", width, layers, inner, patch, 4, side * side)
