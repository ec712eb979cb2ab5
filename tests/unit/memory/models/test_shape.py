"""Parameters counted from a shape, of models that one can work out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.memory.models.shape import Experts, LatentAttention, Vision
from tests.unit.memory.tiny import EXPERTS, LATENT, TINY, tower

# Four layers: queries 200, keys and values 100 each, outputs 200, an MLP of three times 300; two
# norms of 10; a norm at the end, a table and a head of 10,000 each.
ALL = 4 * (600 + 900 + 20) + 10 + 20_000


@pytest.mark.parametrize(
    ("change", "parameters"),
    [
        ({}, ALL),
        ({"tied": True}, ALL - 10_000),
        ({"qkv_bias": True}, ALL + 4 * 40),
        ({"output_bias": True}, ALL + 4 * 10),
        ({"query_key_norm": True}, ALL + 4 * 2 * 5),
        ({"norms_per_layer": 4}, ALL + 4 * 20),
        ({"other_parameters": 7}, ALL + 7),
        # A router of 80 and eight experts of 180 in place of the MLP, and shared ones of 90.
        ({"experts": EXPERTS}, ALL - 4 * 900 + 4 * (80 + 8 * 180 + 90)),
        ({"experts": replace(EXPERTS, shared_gate=True)}, ALL + 4 * (80 + 1440 + 90 + 10 - 900)),
        ({"experts": replace(EXPERTS, shared_intermediate=0)}, ALL + 4 * (80 + 1440 - 900)),
        ({"experts": replace(EXPERTS, layers=3)}, ALL + 3 * (80 + 1440 + 90 - 900)),
        # Queries of 28, 10 into the cache and 36 out of it, 20 to the output; a norm of the cache.
        ({"latent": LATENT}, ALL + 4 * (280 + 100 + 252 + 200 - 600) + 4 * 7),
        # Queries through 6, which have a norm too.
        ({"latent": replace(LATENT, query_rank=6)},
         ALL + 4 * (60 + 168 + 100 + 252 + 200 - 600) + 4 * (7 + 6)),
    ],
)  # fmt: skip
def test_every_matrix_bias_norm_and_table_counts(change: dict[str, Any], parameters: int) -> None:
    assert replace(TINY, **change).parameters == parameters


# Queries, keys, values and outputs with biases: 80 in each of three layers; an MLP of 76, or 116
# with a gate; what joins four patches to the model: 442.
@pytest.mark.parametrize(
    ("vision", "parameters"),
    [
        (tower(), 3 * (80 + 76) + 442 + 96 + 3 * 16 + 8),
        (tower("qwen2_5_vl"), 3 * (80 + 116) + 442 + 96 + 3 * 8 + 4),
        (replace(tower("qwen3_vl"), positions=9, taps=2),
         3 * (80 + 76) + 3 * 442 + 96 + 4 + 3 * 16 + 9 * 4 + 8 + 2 * 2 * 16),
        (replace(tower("intern_vit"), positions=10, temporal_patch=1),
         3 * (80 + 76) + 170 + 110 + 48 + 4 + 4 + 10 * 4 + 3 * 16 + 3 * 8 + 2 * 16),
        (replace(tower("siglip"), positions=9, temporal_patch=1),
         3 * (80 + 76) + 40 + 48 + 4 + 9 * 4 + 3 * 16 + 8 + 4),
    ],
    ids=lambda value: value.kind if isinstance(value, Vision) else "",
)  # fmt: skip
def test_a_vision_tower_counts_with_its_tables(vision: Vision, parameters: int) -> None:
    seeing = replace(TINY, vision=vision)
    assert seeing.vision_parameters == parameters
    assert seeing.parameters == ALL + parameters


def test_parts_of_a_model() -> None:
    assert (TINY.vision_parameters, TINY.expert_parameters) == (0, 0)
    assert (TINY.layer_parameters, TINY.embedding_parameters) == (1_500, 10_000)
    mixed = replace(TINY, experts=EXPERTS)
    assert mixed.expert_parameters == 4 * 8 * 180
    assert mixed.layer_parameters == 600 + 80 + 1_440 + 90
    assert (TINY.dense_layers, mixed.dense_layers) == (4, 0)
    assert replace(TINY, experts=replace(EXPERTS, layers=3)).dense_layers == 1


def test_widths_are_those_of_all_heads() -> None:
    assert (TINY.query_width, TINY.key_width) == (20, 10)
    # What the cache keeps of a token counts as keys and values, so half of it is keys.
    latent = LatentAttention(0, cache_rank=9, plain_dim=4, rotary_dim=3, value_dim=5)
    assert replace(TINY, latent=latent).key_width == 6


def test_a_token_of_an_image_is_a_square_of_patches() -> None:
    assert tower().pixels_per_token == 16
    assert replace(tower(), patch=14).pixels_per_token == 784


def test_linear_layers_are_named_as_adapters_find_them() -> None:
    def names(**change: Any) -> list[str]:
        return [linear.name for linear in replace(TINY, **change).linears]

    mlp = ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
    assert names() == ["q_proj", "k_proj", "v_proj", "o_proj", *mlp]
    assert "q_proj" in names(latent=LATENT)
    assert names(latent=replace(LATENT, query_rank=6))[:2] == ["q_a_proj", "q_b_proj"]
    mixed = names(experts=Experts(layers=4, count=2, active=1, intermediate=3))
    assert mixed[4:] == ["router", "experts.gate_proj", "experts.up_proj", "experts.down_proj"]
    assert names(vision=tower("siglip"))[-1] == "projector"
    assert names(vision=tower("qwen2_5_vl"))[9:12] == [f"visual.{name}" for name in mlp]
