"""What a config.json says, key by key, and what holds where it says nothing."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.memory.models.config import UnknownShapeError, shape_of
from grpo_doctor.memory.models.shape import Experts, LatentAttention, ModelShape, Vision

BASE = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4, "vocab_size": 100,
    "num_attention_heads": 8,
}  # fmt: skip
MIXED = {"num_experts": 8, "moe_intermediate_size": 16}
TOWER = {"hidden_size": 32, "depth": 3, "intermediate_size": 96, "patch_size": 16}
LATENT = {
    "kv_lora_rank": 7, "qk_nope_head_dim": 4, "qk_rope_head_dim": 3, "v_head_dim": 5,
}  # fmt: skip


def shape(**more: Any) -> ModelShape:
    config = {**BASE, **more}
    return shape_of("m", {k: v for k, v in config.items() if v != "left out"}, "here")


@pytest.mark.parametrize(
    ("more", "field", "value"),
    [
        ({}, "heads", 8),
        ({"num_attention_heads": "left out"}, "heads", 1),
        ({}, "kv_heads", 8),
        ({"num_key_value_heads": 2}, "kv_heads", 2),
        ({}, "head_dim", 8),
        ({"head_dim": 16}, "head_dim", 16),
        ({}, "intermediate", 256),
        ({"intermediate_size": 200}, "intermediate", 200),
        ({}, "tied", False),
        ({"tie_word_embeddings": True}, "tied", True),
        ({"model_type": "gemma"}, "tied", True),
        ({"model_type": "gemma", "tie_word_embeddings": False}, "tied", False),
        ({}, "qkv_bias", False),
        ({"model_type": "qwen2"}, "qkv_bias", True),
        ({"attention_bias": True}, "qkv_bias", True),
        ({}, "output_bias", False),
        ({"attention_bias": True}, "output_bias", True),
        ({"model_type": "qwen2"}, "output_bias", False),
        ({"model_type": "qwen2", "attention_bias": True}, "output_bias", False),
        ({}, "query_key_norm", False),
        ({"model_type": "qwen3"}, "query_key_norm", True),
        ({}, "norms_per_layer", 2),
        ({"model_type": "gemma2"}, "norms_per_layer", 4),
        ({}, "max_positions", None),
        ({"max_position_embeddings": 4096}, "max_positions", 4096),
        ({"max_position_embeddings": "many"}, "max_positions", None),
        ({}, "other_parameters", 0),
        ({"other_parameters": 9}, "other_parameters", 9),
        ({}, "experts", None),
        ({}, "latent", None),
        ({}, "vision", None),
        (MIXED, "experts", Experts(4, 8, 1, 16)),
        ({"n_routed_experts": 8, "intermediate_size": 24}, "experts", Experts(4, 8, 1, 24)),
        ({"num_local_experts": 8}, "experts", Experts(4, 8, 1, 0)),
        ({**MIXED, "intermediate_size": 24}, "experts", Experts(4, 8, 1, 16)),
        ({**MIXED, "num_experts_per_tok": 2}, "experts", Experts(4, 8, 2, 16)),
        ({**MIXED, "decoder_sparse_step": 2}, "experts", Experts(2, 8, 1, 16)),
        ({**MIXED, "first_k_dense_replace": 1}, "experts", Experts(3, 8, 1, 16)),
        ({**MIXED, "n_shared_experts": 2}, "experts", Experts(4, 8, 1, 16, 32)),
        ({**MIXED, "shared_expert_intermediate_size": 40, "n_shared_experts": 2}, "experts",
         Experts(4, 8, 1, 16, 40, shared_gate=True)),
        ({"num_experts": 0}, "experts", None),
        ({"quantization_config": {"quant_method": "fp8"}}, "bits", 8),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "bits", 4),
        ({"quantization_config": {"quant_method": "other"}}, "bits", 16),
        (LATENT, "latent", LatentAttention(0, 7, 4, 3, 5)),
        ({**LATENT, "q_lora_rank": 6}, "latent", LatentAttention(6, 7, 4, 3, 5)),
        ({**LATENT, "kv_lora_rank": 0}, "latent", None),
    ],
)  # fmt: skip
def test_a_key_says_a_size_and_without_it_the_usual_one_holds(
    more: dict[str, Any], field: str, value: Any
) -> None:
    assert getattr(shape(**more), field) == value


@pytest.mark.parametrize(
    ("family", "tower", "vision"),
    [
        ("qwen2_vl", {"embed_dim": 32, "depth": 3, "patch_size": 16},
         Vision("qwen2_vl", 32, 3, 128, 16, 2, 0, 2)),
        ("qwen2_vl", {"embed_dim": 32, "depth": 3, "mlp_ratio": 2},
         Vision("qwen2_vl", 32, 3, 64, 14, 2, 0, 2)),
        ("qwen2_5_vl", TOWER, Vision("qwen2_5_vl", 32, 3, 96, 16, 2, 0, 2)),
        ("qwen3_vl", TOWER, Vision("qwen3_vl", 32, 3, 96, 16, 2, 0, 2, 0)),
        ("qwen3_vl", {**TOWER, "num_position_embeddings": 9, "deepstack_visual_indexes": [1, 2]},
         Vision("qwen3_vl", 32, 3, 96, 16, 2, 9, 2, 2)),
        ("internvl_chat", {"hidden_size": 32, "num_hidden_layers": 3},
         Vision("intern_vit", 32, 3, 128, 14, 2, 32 * 32 + 1)),
        ("internvl_chat", {**TOWER, "image_size": 160},
         Vision("intern_vit", 32, 3, 96, 16, 2, 10 * 10 + 1)),
        ("gemma3", {**TOWER, "image_size": 160}, Vision("siglip", 32, 3, 96, 16, 4, 100)),
    ],
)  # fmt: skip
def test_a_vision_tower_is_read_as_its_family_writes_it(
    family: str, tower: dict[str, Any], vision: Vision
) -> None:
    assert shape(model_type=family, vision_config=tower).vision == vision
    # The language model inside may have a type of its own.
    text = {**BASE, "model_type": "qwen2"}
    nested = {"model_type": family, "text_config": text, "vision_config": tower}
    assert shape_of("m", nested, "here").vision == vision
    assert shape_of("m", {"thinker_config": nested}, "here").vision == vision
    bare = {"text_config": {**text, "model_type": family}, "vision_config": tower}
    assert shape_of("m", bare, "here").vision == vision


@pytest.mark.parametrize("key", ["text_config", "llm_config", "language_config"])
def test_the_language_model_may_lie_within(key: str) -> None:
    inner = shape_of("m", {"hidden_size": 8, key: BASE, "tie_word_embeddings": True}, "here")
    assert (inner.hidden, inner.layers, inner.tied) == (64, 4, True)
    own = shape_of("m", {**BASE, key: {"model_type": "other"}}, "here")
    assert own.hidden == 64
    words = shape_of("m", {**BASE, key: "hidden_size"}, "here")
    assert words.hidden == 64


def test_the_kind_is_that_of_the_language_model_or_else_of_the_whole() -> None:
    without = {key: value for key, value in BASE.items() if key != "model_type"}
    outer = {"model_type": "qwen3", "text_config": without}
    assert shape_of("m", outer, "here").query_key_norm
    inner = {"model_type": "other", "text_config": {**without, "model_type": "qwen3"}}
    assert shape_of("m", inner, "here").query_key_norm


@pytest.mark.parametrize(
    ("left_out", "words"),
    [
        (("hidden_size",), "no hidden_size in"),
        (("vocab_size", "num_hidden_layers"), "no num_hidden_layers, vocab_size in"),
    ],
)
def test_sizes_that_every_decoder_has_are_asked_for(left_out: tuple[str, ...], words: str) -> None:
    with pytest.raises(UnknownShapeError, match=words):
        shape(**dict.fromkeys(left_out, "left out"))


@pytest.mark.parametrize(
    ("key", "kind"),
    [("layer_types", ["full_attention", "linear_attention"]), ("mamba_d_state", 16)],
)
def test_layers_of_another_kind_are_not_taken_for_attention(key: str, kind: Any) -> None:
    with pytest.raises(UnknownShapeError, match="layers other than attention"):
        shape(**{key: kind})
    assert shape(layer_types=["full_attention", "sliding_attention"], mamba_d_state=0)


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "vocab_size"])
def test_a_size_is_at_least_one(key: str) -> None:
    heads = {"num_attention_heads": 1}
    assert shape(**heads, **{key: 1})
    with pytest.raises(UnknownShapeError, match="can't be understood"):
        shape(**heads, **{key: 0})
