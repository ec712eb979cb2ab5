"""Which entries each phase has, of a model that one can work out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.memory import Component, Ledger, Phase, Pool, RolloutEngine, Setup, ledger_of
from grpo_doctor.memory.estimate import server_pool
from grpo_doctor.memory.facts import calibration
from tests.unit.memory.tiny import ALONE, EXPERTS, TINY, tower

GIB = 1 << 30
ALL = 26_090
CONTEXT, WEIGHTS = 503_316_480, 2 * ALL
ROLLED = replace(ALONE, completion_tokens=300)
COLOCATED = replace(
    ROLLED, rollout="colocate", rollout_engine=RolloutEngine(memory_share=0.5, version="0.20")
)
ZERO_3 = {"engine": "deepspeed", "zero_stage": 3, "ranks": 2}
SEEING = {"model": replace(TINY, vision=tower()), "max_pixels": 160}
OWN = {"trained weights", "optimizer moments"}
ENGINE = {"engine weights", "engine cache and buffers", "CUDA graphs"}


def phases(setup: Setup) -> dict[str, dict[str, int]]:
    return {
        phase.name: {entry.name: entry.bytes for entry in phase.components}
        for phase in ledger_of(setup).train.phases
    }


@pytest.mark.parametrize(
    ("setup", "names"),
    [
        (ALONE, ["train", "optimizer", "checkpoint"]),
        (ROLLED, ["train", "optimizer", "checkpoint", "logprob", "rollout"]),
        (replace(ROLLED, rollout="server"),
         ["train", "optimizer", "checkpoint", "logprob", "sync"]),
        (COLOCATED, ["train", "optimizer", "checkpoint", "logprob", "init", "rollout", "sync"]),
    ],
)  # fmt: skip
def test_phases_are_those_of_what_rolls_out(setup: Setup, names: list[str]) -> None:
    assert list(phases(setup)) == names
    role = "train and rollout" if setup.rollout == "colocate" else "train"
    assert ledger_of(setup).train.role == role


@pytest.mark.parametrize(
    ("change", "rollout", "sync"),
    [
        ({}, OWN | ENGINE, OWN | ENGINE),
        ({"offload_weights": True}, ENGINE | {"optimizer moments"}, OWN | ENGINE),
        ({"offload_optimizer": True}, ENGINE | {"trained weights"}, ENGINE | {"trained weights"}),
    ],
)  # fmt: skip
def test_what_is_offloaded_makes_room_for_a_rollout(
    change: dict[str, Any], rollout: set[str], sync: set[str]
) -> None:
    by_phase = phases(replace(COLOCATED, **change))
    assert set(by_phase["rollout"]) - {"CUDA context"} == rollout
    assert set(by_phase["sync"]) - {"CUDA context"} == sync
    assert set(by_phase["init"]) - {"CUDA context"} == ENGINE | {"trained weights"}
    assert "engine weights" in by_phase["train"]


def test_an_engine_that_sleeps_leaves_its_cache_out_of_training_and_sync() -> None:
    asleep = replace(COLOCATED, rollout_engine=replace(COLOCATED.rollout_engine, sleep_level=1))
    by_phase = phases(asleep)
    for phase in ("train", "optimizer", "checkpoint", "logprob"):
        assert "engine asleep" in by_phase[phase]
        assert not {"engine weights", "engine cache and buffers"} & set(by_phase[phase])
    assert ENGINE - set(by_phase["sync"]) == {"engine cache and buffers"}
    assert set(by_phase["rollout"]) >= ENGINE


@pytest.mark.parametrize(
    ("change", "size"),
    [
        ({}, None),
        ({"method": "lora", "framework": "trl"}, None),
        ({"framework": "ms-swift", "engine": "deepspeed", "zero_stage": 2, "ranks": 2}, None),
        ({"framework": "ms-swift", **ZERO_3}, WEIGHTS),
        ({"framework": "ms-swift", **ZERO_3, "sync_groups": 16}, WEIGHTS // 16),
        ({"framework": "ms-swift", "engine": "fsdp", "ranks": 2}, WEIGHTS),
        # Parameter by parameter: at most a table.
        ({"framework": "trl", "engine": "fsdp", "ranks": 2}, 20_000),
        ({"framework": "verl", "engine": "fsdp", "ranks": 2, "sync_groups": 16}, 20_000),
    ],
)
def test_weights_that_ranks_divide_are_gathered_for_an_engine(
    change: dict[str, Any], size: int | None
) -> None:
    for rollout in ("server", "colocate"):
        entries = phases(replace(COLOCATED, rollout=rollout, **change))["sync"]
        assert entries.get("gathered for the engine") == size


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, {"generation cache": 312_000}),
        ({"micro_batch": 2}, {"generation cache": 624_000}),
        ({"completions_per_rank": 8}, {"generation cache": 8 * 312_000}),
        ({"rollout_engine": RolloutEngine(tensor_parallel=2)}, {"generation cache": 312_000}),
        ({"old_vision_tower": True}, {"generation cache": 312_000}),
        (SEEING, {"generation cache": 312_000}),
        ({**SEEING, "old_vision_tower": True, "completions_per_rank": 2},
         {"generation cache": 624_000, "logits of whole prompts": 2 * 2 * 1000 * 1000,
          "mask of the vision tower": 3 * (2 * 10 * 4) ** 2}),
        ({"engine": "deepspeed", "zero_stage": 3},
         {"generation cache": 312_000, "gathered for generation": WEIGHTS}),
        ({"engine": "deepspeed", "zero_stage": 3, "gather_for_generation": False},
         {"generation cache": 312_000}),
        ({"engine": "deepspeed", "zero_stage": 2}, {"generation cache": 312_000}),
    ],
)  # fmt: skip
def test_the_models_own_generate_takes_a_cache(
    change: dict[str, Any], expected: dict[str, int]
) -> None:
    names = ("generation cache", "logits of whole prompts", "mask of the vision tower",
             "gathered for generation")  # fmt: skip
    entries = phases(replace(ROLLED, rollout="generate", **change))["rollout"]
    assert {name: size for name, size in entries.items() if name in names} == expected


TEACHER = replace(TINY, name="teacher", experts=EXPERTS)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, {}),
        ({"reference": True}, {"reference model": WEIGHTS}),
        ({"reference": True, "method": "lora"}, {}),
        ({"reference": True, **ZERO_3}, {"reference model": ALL}),
        ({"reference": True, "engine": "deepspeed", "zero_stage": 2, "ranks": 2},
         {"reference model": WEIGHTS}),
        ({"reference": True, "engine": "fsdp", "ranks": 2}, {"reference model": ALL}),
        ({"reference": True, "tensor_parallel": 2, "pipeline_parallel": 2, "ranks": 4},
         {"reference model": WEIGHTS // 4}),
        ({"beside": (TEACHER,)}, {"teacher": 2 * 28_930}),
        ({"beside": (TEACHER,), "reference": True},
         {"reference model": WEIGHTS, "teacher": 2 * 28_930}),
    ],
)  # fmt: skip
def test_models_beside_the_trained_one_are_divided_as_it_is(
    change: dict[str, Any], expected: dict[str, int]
) -> None:
    by_phase = phases(replace(ALONE, **change))
    for phase in by_phase.values():
        assert {n: s for n, s in phase.items() if n in ("reference model", "teacher")} == expected


@pytest.mark.parametrize(
    ("spare", "change", "refused"),
    [
        (0, {}, False),
        (-2, {}, True),
        (-2, {"offload_weights": True}, False),
        (-2, {"rollout_engine": RolloutEngine("sglang", memory_share=0.9)}, False),
        (-2, {"rollout_engine": RolloutEngine(memory_share=0.5, cache_bytes=GIB)}, False),
        (-2, {"rollout": "server"}, False),
        (-2, {"rollout_engine": RolloutEngine(memory_share=0.4)}, False),
    ],
)
def test_vllm_does_not_start_where_less_than_its_share_is_free(
    spare: int, change: dict[str, Any], refused: bool
) -> None:
    # Half of the card is what CUDA and the trainer's weights leave.
    setup = replace(COLOCATED, card_bytes=2 * (CONTEXT + WEIGHTS) + spare, **change)
    refusals = ledger_of(setup).train.refusals
    assert bool(refusals) is refused
    if refused:
        words = "vLLM needs 0.5 GiB free at startup, but only 0.5 GiB is left after loading the "
        assert refusals == (f"{words}trainer's weights",)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "every rank"),
        ({"pipeline_parallel": 2, "ranks": 2}, "the first pipeline stage"),
        ({"engine": "device_map", "ranks": 2}, "the last card"),
    ],
)
def test_the_most_used_rank_is_named(change: dict[str, Any], words: str) -> None:
    assert ledger_of(replace(ALONE, **change)).train.peak_rank == words


def test_other_factors_than_those_that_ship_may_be_given() -> None:
    factors = replace(calibration(), fragmentation_fixed=2.0)
    usual, wasteful = ledger_of(ALONE), ledger_of(ALONE, factors)
    assert wasteful.train.peak.bytes > usual.train.peak.bytes
    sure = replace(calibration(), spread_engine=0.0)
    spreads = {entry.name: entry.spread for entry in server_pool(COLOCATED, sure).peak.components}
    assert spreads["engine weights"] == 0.0


def test_a_server_is_there_only_where_one_is_given() -> None:
    assert [pool.role for pool in ledger_of(ROLLED).pools] == ["train"]
    with_server = ledger_of(ROLLED, server=COLOCATED)
    assert [pool.role for pool in with_server.pools] == ["train", "rollout"]
    assert with_server.train.role == "train"


# -- the ledger itself


def pool(needed: int, *refusals: str, spare: int = 0) -> Pool:
    entry = Component("x", needed + spare, "", "", None, 0.05, spare)
    return Pool("train", 100 * GIB, (Phase("train", (entry,)),), refusals=refusals)


def test_what_the_allocator_gives_back_is_not_needed() -> None:
    phase = pool(60 * GIB, spare=50 * GIB).peak
    assert (phase.bytes, phase.needed_bytes) == (110 * GIB, 60 * GIB)
    assert pool(60 * GIB, spare=50 * GIB).needed_share == 0.6


def test_a_pool_that_refuses_decides_and_then_the_one_with_least_left() -> None:
    sure, unsure, refusing = pool(GIB), pool(99 * GIB), pool(GIB, "no")
    assert Ledger((sure, unsure)).worst is unsure
    assert Ledger((sure, refusing, unsure)).worst is refusing
    assert Ledger((sure,), host=unsure).worst is unsure
    assert (Ledger((sure, refusing)).state, Ledger((sure,)).state) == ("invalid", "fits")
