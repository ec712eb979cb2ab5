"""What a layer takes of a token, held to what the real code takes under fake tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.memory import ModelShape, Setup, model_shape
from grpo_doctor.memory.layers import backward_bytes, kept_bytes, scored_bytes
from tests.unit.memory.tiny import ALONE, EXPERTS, TINY

QWEN_7B = model_shape("Qwen/Qwen2.5-7B")
FLASH: dict[str, Any] = {"attention": "flash"}
WEIGHTS = 2072
"""Of the largest weight's gradient, for each of the 65,536 tokens that were measured."""


def setup(model: ModelShape, **change: Any) -> Setup:
    return replace(ALONE, model=model, **FLASH, **change)


def test_what_is_kept_is_what_autograd_saves() -> None:
    assert kept_bytes(setup(QWEN_7B)) == 225_392


@pytest.mark.parametrize(
    ("model", "change", "measured"),
    [
        ("Qwen/Qwen2.5-7B", {}, 279_668 - WEIGHTS),
        ("Qwen/Qwen2.5-7B", {"method": "lora"}, 368_000),
        ("Qwen/Qwen2.5-7B", {"trained_dtype_bytes": 4}, 299_044 - WEIGHTS),
        ("Qwen/Qwen2.5-0.5B", {}, 71_484),
        ("Qwen/Qwen3-30B-A3B", {}, 280_612),
    ],
)
def test_a_layers_backward_pass_takes_what_was_measured(
    model: str, change: dict[str, Any], measured: int
) -> None:
    job = setup(model_shape(model), **change)
    assert kept_bytes(job) + backward_bytes(job) == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize(
    ("model", "change", "measured"),
    [
        ("Qwen/Qwen2.5-7B", {}, 142_368),
        ("Qwen/Qwen2.5-0.5B", {}, 36_368),
        ("Qwen/Qwen2.5-7B", {"method": "lora"}, 194_669),
    ],
)
def test_a_layer_without_gradients_takes_what_was_measured(
    model: str, change: dict[str, Any], measured: int
) -> None:
    assert scored_bytes(setup(model_shape(model), **change)) == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({}, 536),
        ({"attention": "fused"}, 536),
        # A mask makes SDPA repeat keys and values of 10 to the queries' 20.
        ({"attention": "fused", "micro_batch": 2, "packing": False}, 536 + 40),
        ({"attention": "fused", "micro_batch": 2, "packing": True}, 536),
        ({"method": "lora"}, 536 + 20 + 40 + 14 * 8),
        ({"method": "lora", "lora_targets": "attention"}, 536 - 40 - 60 + 4 * 8),
        ({"method": "lora", "engine": "deepspeed"}, 536 - 40 + 14 * 8),
        ({"model": replace(TINY, query_key_norm=True)}, 536 + 6 * 30),
        ({"model": replace(TINY, norms_per_layer=4)}, 536 + 200),
        # Two experts of 6 and a shared one of 3, four times; and two copies of the input.
        ({"model": replace(TINY, experts=EXPERTS)}, 536 - 240 + 200 + 4 * EXPERTS.count),
        # With fused kernels three inputs, queries, keys and values twice, attention's output, and
        # three times the MLP.
        ({"engine": "megatron"}, 2 * (30 + 2 * 40 + 20 + 90)),
    ],
)
def test_what_a_layer_keeps_of_a_token(change: dict[str, Any], kept: int) -> None:
    assert kept_bytes(replace(ALONE, **{**FLASH, **change})) == kept
