"""What ranks hold between micro-batches, of a model that one can work out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.memory import Setup
from grpo_doctor.memory.facts import calibration, holds_since
from grpo_doctor.memory.setup import Share, share_of
from grpo_doctor.memory.states import States, frozen_bytes, states_of
from tests.unit.memory.tiny import ALONE, EXPERTS, TINY, tower

# Layers of 6,000 weights in matrices and norms of 90; a table and a head of 10,000 each.
ALL, LAYERS, TABLE = 26_090, 6_090, 10_000
# Queries, keys and values, outputs: 2,400; a router of 320 and shared experts of 360.
WITH_EXPERTS, OF_EXPERTS = 2_400 + 320 + 360 + 90 + 2 * TABLE, 5_760
# Layers of 468, what joins them to the model of 442; patches, norms: 152.
TOWER = 1_062
# With rank 8: attention's four matrices, and three of the MLP.
ADAPTERS, OF_QUERIES_AND_VALUES = 3_200 + 3_840, 1_600
MIXED = replace(TINY, experts=EXPERTS)
SEEING = replace(TINY, vision=tower())
LORA = replace(ALONE, method="lora")
ZERO = replace(ALONE, engine="deepspeed", ranks=2)


@pytest.mark.parametrize(
    ("change", "trained", "experts", "frozen"),
    [
        ({}, ALL, 0, 0),
        ({"tensor_parallel": 2}, ALL // 2, 0, 0),
        # The first and the last stage have one of the tables each, and a tied one is at both.
        ({"pipeline_parallel": 2}, LAYERS // 2 + TABLE, 0, 0),
        ({"model": replace(TINY, tied=True)}, LAYERS + TABLE, 0, 0),
        ({"model": replace(TINY, tied=True), "pipeline_parallel": 2}, LAYERS // 2 + TABLE, 0, 0),
        ({"engine": "device_map", "ranks": 2}, ALL // 2, 0, 0),
        ({"model": MIXED}, WITH_EXPERTS, OF_EXPERTS, 0),
        ({"model": MIXED, "expert_parallel": 4}, WITH_EXPERTS, OF_EXPERTS // 4, 0),
        ({"model": MIXED, "expert_parallel": 2, "pipeline_parallel": 2},
         (WITH_EXPERTS - 2 * TABLE) // 2 + TABLE, OF_EXPERTS // 4, 0),
        ({"model": MIXED, "engine": "device_map", "ranks": 2}, WITH_EXPERTS // 2, 2880, 0),
        ({"model": SEEING}, ALL, 0, TOWER),
        ({"model": SEEING, "freeze_vision": False}, ALL + TOWER, 0, 0),
        ({"model": SEEING, "engine": "device_map", "ranks": 2}, ALL // 2, 0, TOWER // 2),
        ({"model": replace(SEEING, other_parameters=100), "freeze_vision": False}, ALL + TOWER, 0,
         100),
    ],
)  # fmt: skip
def test_full_training_holds_its_share_of_layers_and_a_table(
    change: dict[str, Any], trained: int, experts: int, frozen: int
) -> None:
    assert share_of(replace(ALONE, **change)) == Share(trained, experts, frozen)


@pytest.mark.parametrize(
    ("change", "adapters", "of_experts", "frozen"),
    [
        ({}, ADAPTERS, 0, ALL),
        ({"lora_rank": 4}, ADAPTERS // 2, 0, ALL),
        ({"lora_targets": "attention"}, OF_QUERIES_AND_VALUES, 0, ALL),
        ({"fully_trained_tables": 2}, ADAPTERS + 2 * TABLE, 0, ALL),
        ({"tensor_parallel": 2}, ADAPTERS // 2, 0, ALL // 2),
        ({"engine": "device_map", "ranks": 2}, ADAPTERS // 2, 0, ALL // 2),
        # The router has none; shared experts of 3 have 1,248, and the others 4,096 in each matrix.
        ({"model": MIXED}, 3_200 + 1_248, 3 * 4_096, WITH_EXPERTS + OF_EXPERTS),
        # In transformers 5 the router of 576 too, and gate and up in one, of twice the rank.
        ({"model": MIXED, "fused_experts": True}, 3_200 + 1_248 + 576, 15_360,
         WITH_EXPERTS + OF_EXPERTS),
        ({"model": MIXED, "expert_parallel": 4}, 3_200 + 1_248, 3 * 1_024,
         WITH_EXPERTS + OF_EXPERTS // 4),
        ({"model": MIXED, "lora_targets": "attention"}, OF_QUERIES_AND_VALUES, 0,
         WITH_EXPERTS + OF_EXPERTS),
        ({"model": SEEING}, ADAPTERS, 0, ALL + TOWER),
        ({"model": SEEING, "freeze_vision": False}, ADAPTERS + 1_152, 0, ALL + TOWER),
        ({"model": SEEING, "freeze_aligner": False}, ADAPTERS + 464, 0, ALL + TOWER),
        ({"model": SEEING, "freeze_vision": False, "freeze_aligner": False,
          "lora_targets": "attention"}, OF_QUERIES_AND_VALUES, 0, ALL + TOWER),
    ],
)  # fmt: skip
def test_lora_trains_adapters_of_what_it_targets(
    change: dict[str, Any], adapters: int, of_experts: int, frozen: int
) -> None:
    assert share_of(replace(LORA, **change)) == Share(adapters, of_experts, frozen)


@pytest.mark.parametrize(
    ("change", "size"),
    [
        ({}, 2 * ALL),
        ({"trained_dtype_bytes": 4}, 4 * ALL),
        ({"trained_dtype_bytes": 4, "engine": "fsdp"}, 4 * ALL),
        ({"trained_dtype_bytes": 4, "engine": "deepspeed"}, 2 * ALL),
        # Four bits and scales, more of bitsandbytes; tables and the vision tower stay in 16.
        ({"base_bits": 4}, 2 * 2 * TABLE + LAYERS * 4.16 / 8),
        ({"base_bits": 8}, 2 * 2 * TABLE + LAYERS * 8.16 / 8),
        ({"base_bits": 4, "tables_in_float32": True}, 4 * 2 * TABLE + LAYERS * 4.5 / 8),
        ({"base_bits": 4, "model": replace(TINY, tied=True)}, 2 * TABLE + LAYERS * 4.16 / 8),
        ({"base_bits": 4, "model": SEEING}, 2 * (2 * TABLE + TOWER) + LAYERS * 4.16 / 8),
        ({"base_bits": 4, "tensor_parallel": 2}, (2 * 2 * TABLE + LAYERS * 4.16 / 8) / 2),
    ],
)
def test_what_is_not_trained_stays_as_it_was_loaded(change: dict[str, Any], size: float) -> None:
    setup = replace(LORA, **change)
    assert frozen_bytes(setup, share_of(setup)) == size


def sizes(states: States) -> dict[str, int]:
    return {entry.name: entry.bytes for entry in (*states.all, *states.scratch)}


def entries(change: dict[str, Any], base: Setup = ALONE) -> dict[str, int]:
    return sizes(states_of(replace(base, **change), calibration()))


@pytest.mark.parametrize(
    ("change", "weights", "gradients", "moments"),
    [
        ({}, 2, 2, 4),
        ({"optimizer": "sgd"}, 2, 2, 0),
        ({"optimizer": "muon"}, 2, 2, 2),
        ({"optimizer": "adamw_8bit"}, 2, 2, 1),
        ({"trained_dtype_bytes": 4}, 4, 4, 8),
        # FSDP divides all of it.
        ({"engine": "fsdp", "ranks": 2}, 1, 1, 2),
        ({"engine": "fsdp"}, 2, 2, 4),
        ({"ranks": 2}, 2, 2, 4),
        ({"zero_stage": 3, "ranks": 2}, 2, 2, 4),  # a stage says nothing without DeepSpeed
    ],
)
def test_plain_training_keeps_weights_gradients_and_moments_in_the_weights_type(
    change: dict[str, Any], weights: int, gradients: int, moments: int
) -> None:
    assert entries(change) == {
        "trained weights": weights * ALL,
        "gradients": gradients * ALL,
        "optimizer moments": moments * ALL,
    }


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"zero_stage": 0}, (2, 2, 8, 4, 4)),
        ({"zero_stage": 1}, (2, 2, 4, 2, 3)),
        ({"zero_stage": 2}, (2, 1, 4, 2, 3)),
        ({"zero_stage": 3}, (1, 1, 4, 2, 3)),
        ({"zero_stage": 2, "zero_offload_parameters": True}, (2, 1, 4, 2, 3)),
        ({"zero_stage": 3, "zero_offload_parameters": True}, (0, 1, 4, 2, 3)),
        ({"zero_stage": 1, "zero_offload_optimizer": True}, (2, 2)),
        ({"zero_stage": 2, "zero_offload_optimizer": True}, (2, 0)),
        ({"zero_stage": 3, "zero_offload_optimizer": True}, (1, 0)),
        ({"zero_stage": 0, "optimizer": "adamw_foreach"}, (2, 2, 8, 4, 4, 4)),
        ({"zero_stage": 2, "trained_dtype_bytes": 4}, (2, 1, 4, 2, 3)),
    ],
)
def test_zero_divides_over_two_ranks_and_offloads_what_its_stage_says(
    change: dict[str, Any], expected: tuple[int, ...]
) -> None:
    names = (
        "trained weights", "gradients", "optimizer moments", "float32 master weights",
        "float32 copy of gradients", "foreach scratch",
    )  # fmt: skip
    each = dict(zip(names, expected, strict=False))
    assert entries(change, ZERO) == {name: size * ALL for name, size in each.items()}


@pytest.mark.parametrize(("stage", "each"), [(1, 1), (2, 1), (0, 2)])
def test_zero_1_frees_the_gradients_of_other_ranks_before_its_step(stage: int, each: int) -> None:
    setup = replace(ZERO, zero_stage=stage, ranks=2)
    assert states_of(setup, calibration()).step_gradients.bytes == each * ALL


def test_zero_3_computes_its_optimizer_step_in_groups_of_a_billion() -> None:
    wide = replace(TINY, vocabulary=250_000_000)
    undivided = entries({"model": wide, "zero_stage": 2, "ranks": 1}, ZERO)[
        "float32 copy of gradients"
    ]
    group = entries({"model": wide, "zero_stage": 3, "ranks": 1}, ZERO)["float32 copy of gradients"]
    assert (undivided > 6 * 10**9, group) == (True, 6 * 10**9)
    plain = entries({"model": wide, "zero_stage": 3, "optimizer": "adamw_foreach"})
    assert plain["foreach scratch"] == 2 * wide.parameters


@pytest.mark.parametrize(
    ("change", "each"),
    [({}, 4), ({"engine": "device_map"}, 4), ({"engine": "fsdp"}, 2), ({"engine": "deepspeed"}, 2)],
)
def test_adapters_are_in_float32_where_peft_casts_them(change: dict[str, Any], each: int) -> None:
    actual = entries(change, LORA)
    assert (actual["trained weights"], actual["gradients"]) == (each * ADAPTERS, each * ADAPTERS)
    assert actual["frozen weights"] == 2 * ALL
    assert actual["optimizer moments"] == (8 if each == 4 or "deepspeed" in change.values() else 4
                                          ) * ADAPTERS  # fmt: skip


@pytest.mark.parametrize(
    ("change", "dense_by", "experts_by"),
    [
        ({}, 4, 2),
        ({"distributed_optimizer": False}, 1, 1),
        ({"pipeline_parallel": 2, "expert_parallel": 2}, 2, 2),
        ({"expert_parallel": 16}, 4, 1),
    ],
)
def test_megatron_divides_master_weights_and_moments(
    change: dict[str, Any], dense_by: int, experts_by: int
) -> None:
    base = replace(ALONE, model=MIXED, engine="megatron", ranks=8, tensor_parallel=2,
                   expert_parallel=4)  # fmt: skip
    setup = replace(base, **change)
    share, actual = share_of(setup), entries(change, base)
    trained = share.trained + share.trained_experts
    assert actual == {
        "trained weights": 2 * trained,
        "gradients": 4 * trained,
        "master weights and moments": round(
            12 * (share.trained / dense_by + share.trained_experts / experts_by)
        ),
    }
    half = entries({**change, "optimizer_offload_share": 0.5}, base)
    assert half["master weights and moments"] == pytest.approx(
        actual["master weights and moments"] / 2, abs=1
    )


@pytest.mark.parametrize(
    ("change", "stays"),
    [
        ({"engine": "deepspeed", "zero_stage": 3}, True),
        ({"engine": "deepspeed", "zero_stage": 2}, False),
        ({"engine": "fsdp"}, False),
        ({"engine": "torch", "zero_stage": 3}, False),
        ({"engine": "megatron"}, True),
    ],
)
def test_gradients_stay_between_steps_in_buffers_of_zero_3_and_megatron(
    change: dict[str, Any], stays: bool
) -> None:
    states = states_of(replace(ALONE, **change), calibration())
    assert ("gradients" in {entry.name for entry in states.between_steps}) is stays
    assert set(states.optimizer) <= set(states.between_steps)


def test_experts_are_in_states_too() -> None:
    mixed = {"model": MIXED}
    assert entries(mixed)["trained weights"] == 2 * (WITH_EXPERTS + OF_EXPERTS)


@pytest.mark.parametrize(
    ("version", "since", "holds"),
    [
        ("4.53", "4.53", True), ("4.52.9", "4.53", False), ("4.53.1", "4.53", True),
        (None, "4.53", True), ("main", "4.53", True), ("4.52", "", True),
    ],
)  # fmt: skip
def test_a_fact_holds_from_its_version_on_and_where_none_is_known(
    version: str | None, since: str, holds: bool
) -> None:
    assert holds_since(version, since) is holds


def test_copies_are_counted() -> None:
    eight = replace(ALONE, ranks=8)
    assert [replace(eight, tensor_parallel=n).data_parallel for n in (1, 2, 8, 16)] == [8, 4, 1, 1]
    assert replace(eight, pipeline_parallel=2, tensor_parallel=2).data_parallel == 2
    assert replace(eight, engine="device_map").data_parallel == 1


def test_images_have_tokens_where_the_model_sees_and_pixels_are_given() -> None:
    seeing = replace(ALONE, model=SEEING, max_pixels=161)
    assert seeing.image_tokens == 10
    assert replace(seeing, max_pixels=1).image_tokens == 1
    assert replace(seeing, max_pixels=None).image_tokens == 0
    assert replace(seeing, model=TINY).image_tokens == 0


@pytest.mark.parametrize(("tokens", "is_grpo"), [(0, False), (1, True)])
def test_completions_make_it_grpo(tokens: int, is_grpo: bool) -> None:
    assert replace(ALONE, completion_tokens=tokens).is_grpo is is_grpo
