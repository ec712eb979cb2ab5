"""What lies on a card whatever the model, of a model that one can work out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.memory.facts import calibration
from grpo_doctor.memory.overhead import (
    Gathered,
    buffers,
    context,
    gathered,
    gathered_bytes,
    whole_model_bytes,
)
from grpo_doctor.memory.setup import GIB
from tests.unit.memory.tiny import ALONE, EXPERTS, TINY

FIRST = 1_556_925_645
ALL, ADAPTERS = 26_090, 7_040


@pytest.mark.parametrize(
    ("change", "groups"),
    [
        ({}, 0),
        ({"ranks": 2}, 1),
        ({"ranks": 8, "engine": "device_map"}, 0),
        ({"ranks": 8, "tensor_parallel": 2}, 2),
        ({"ranks": 8, "tensor_parallel": 2, "pipeline_parallel": 2}, 3),
        ({"ranks": 8, "context_parallel": 2, "expert_parallel": 2}, 2),
        # Megatron has one of data parallelism too, where there is some.
        ({"ranks": 8, "tensor_parallel": 2, "engine": "megatron"}, 3),
        ({"ranks": 8, "tensor_parallel": 8, "engine": "megatron"}, 2),
    ],
)
def test_each_group_of_ranks_has_its_buffers(change: dict[str, Any], groups: int) -> None:
    sizes = {e.name: e.bytes for e in context(replace(ALONE, **change), calibration())}
    expected = FIRST + round((groups - 1) * 1.4 * GIB) if groups else None
    assert sizes.get("NCCL buffers") == expected
    assert sizes["CUDA context"] == (987_842_478 if "megatron" in change.values() else 503_316_480)


@pytest.mark.parametrize(
    ("change", "peers"),
    [
        ({"ranks": 8, "context_parallel": 2}, 0),
        ({"ranks": 8, "context_parallel": 4, "engine": "fsdp"}, 3),
        ({"ranks": 16, "ranks_per_node": 8, "expert_parallel": 16, "engine": "megatron"}, 7),
    ],
)
def test_an_exchange_of_all_has_a_buffer_for_each_peer(change: dict[str, Any], peers: int) -> None:
    sizes = {e.name: e.bytes for e in context(replace(ALONE, **change), calibration())}
    assert sizes.get("NCCL exchanges", 0) == peers * 469_000_000


def test_words_say_how_many_groups_there_are() -> None:
    setup = replace(ALONE, ranks=8, tensor_parallel=2, pipeline_parallel=2)
    _, nccl = context(setup, calibration())
    assert nccl.formula == "1.45 GiB, and 1.4 GiB for each of 2 more"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, {}),
        ({"ranks": 2}, {"DDP buckets": 2 * ALL}),
        ({"ranks": 2, "trained_dtype_bytes": 4}, {"DDP buckets": 4 * ALL}),
        ({"ranks": 2, "model": replace(TINY, experts=EXPERTS)}, {"DDP buckets": 2 * 28_930}),
        ({"ranks": 2, "method": "lora"}, {"DDP buckets": 4 * ADAPTERS}),
        ({"ranks": 2, "engine": "device_map"}, {}),
        ({"ranks": 2, "engine": "deepspeed"}, {}),
        ({"ranks": 2, "engine": "deepspeed", "zero_stage": 1}, {"ZeRO buckets": 10**9}),
        ({"ranks": 2, "engine": "deepspeed", "zero_stage": 2}, {"ZeRO buckets": 10**9}),
        # ZeRO-3 holds up to a billion parameters; its bucket has the width squared.
        ({"engine": "deepspeed", "zero_stage": 3},
         {"ZeRO buckets": 200, "gathered parameters": 2 * ALL}),
        ({"engine": "fsdp"}, {}),
        ({"engine": "torch", "zero_stage": 3}, {}),
    ],
)  # fmt: skip
def test_buckets_and_what_is_gathered(change: dict[str, Any], expected: dict[str, int]) -> None:
    sizes = {e.name: e.bytes for e in buffers(replace(ALONE, **change), calibration())}
    assert sizes == {"workspaces": 128 << 20, **expected}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        # Tables of 20,000 with the root, layers of 1,500; 12 of each are reduced in float32.
        ({}, Gathered(20_000, 86_000, 43_000, 0, 46_000, 6_000, 160_000)),
        ({"trained_dtype_bytes": 4}, Gathered(20_000, 86_000, 43_000, 0, 46_000, 6_000, 140_000)),
        ({"ranks": 8}, Gathered(20_000, 86_000, 43_000, 0, 46_000, 6_000, 120_000)),
        ({"method": "lora"}, Gathered(20_000, 86_000, 43_000, 0, 46_000, 0, 0)),
        ({"reshards": False}, Gathered(20_000, 86_000, 52_000, 0, 55_000, 6_000, 160_000)),
        ({"wraps_tables": True}, Gathered(0, 40_000, 23_000, 93_000, 6_000, 6_000, 90_000)),
        ({"model": replace(TINY, tied=True)},
         Gathered(10_000, 46_000, 23_000, 0, 26_000, 6_000, 90_000)),
        ({"ranks": 1}, Gathered()),
        # In float32 one rank has a copy in 16 bits too.
        ({"ranks": 1, "trained_dtype_bytes": 4},
         Gathered(20_000, 86_000, 43_000, 0, 46_000, 6_000, 180_000)),
        ({"engine": "deepspeed", "zero_stage": 3}, Gathered()),
        # FSDP1 gathers in place, next to its own part in 16 bits.
        ({"flat_parameters": True}, Gathered(20_000, 60_000, 43_000, 0, 47_500, 7_500, 160_000)),
        ({"flat_parameters": True, "ranks": 1, "trained_dtype_bytes": 4},
         Gathered(20_000, 40_000, 43_000, 0, 46_000, 6_000, 120_000)),
    ],
)  # fmt: skip
def test_fsdp_gathers_and_reduces_group_by_group(
    change: dict[str, Any], expected: Gathered
) -> None:
    settings: dict[str, Any] = {"engine": "fsdp", "ranks": 2, "wraps_tables": False, **change}
    assert gathered(replace(ALONE, **settings)) == expected


@pytest.mark.parametrize(("framework", "elements"), [("ms-swift", 2e8), ("trl", 5e8)])
def test_a_bucket_has_the_elements_of_its_framework(framework: str, elements: float) -> None:
    setup = replace(ALONE, engine="deepspeed", zero_stage=2, framework=framework)
    for overlaps in (False, True):
        entries = buffers(replace(setup, overlaps_reduction=overlaps), calibration())
        sizes = {entry.name: entry.bytes for entry in entries}
        assert sizes["ZeRO buckets"] == 2 * elements * (1 + overlaps)


def test_a_layer_larger_than_a_billion_is_gathered_whole() -> None:
    thick = replace(TINY, layers=1, intermediate=40_000_000)
    setup = replace(ALONE, model=thick, engine="deepspeed", zero_stage=3)
    assert gathered_bytes(setup) == 2 * thick.layer_parameters > 2e9


@pytest.mark.parametrize(
    ("change", "size"),
    [
        ({}, 2 * ALL),
        ({"method": "lora"}, 2 * ADAPTERS + 2 * ALL),
        ({"model": replace(TINY, experts=EXPERTS)}, 2 * 28_930),
    ],
)
def test_the_whole_model_is_in_16_bits(change: dict[str, Any], size: int) -> None:
    assert whole_model_bytes(replace(ALONE, **change)) == size
