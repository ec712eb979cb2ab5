"""Which edits are offered for a setup, and what an edit makes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.errors import UsageError
from grpo_doctor.memory import RolloutEngine, Setup
from grpo_doctor.memory.edits import SOLVABLE, apply, relieving, spending
from tests.unit.memory.tiny import ALONE

# Nothing is left to relieve but what each case adds.
LEAN = replace(ALONE, method="lora", loss="fused", engine="device_map", card_bytes=10**8)
ROOMY = RolloutEngine(memory_share=0.5, sleep_level=1, eager=True, tensor_parallel=8)
COLOCATED = replace(
    LEAN, rollout="colocate", rollout_engine=ROOMY, offload_weights=True, offload_optimizer=True
)
OFFLOADED = {"engine": "deepspeed", "zero_offload_optimizer": True, "zero_stage": 3,
             "zero_offload_parameters": True}  # fmt: skip
SHARE = "vllm.gpu_memory_utilization"


def offered(setup: Setup) -> list[tuple[str, Any]]:
    return [(edit.knob, edit.value) for edit in relieving(setup)]


@pytest.mark.parametrize(
    ("change", "edits"),
    [
        ({}, []),
        ({"micro_batch": 2}, [("train.micro_batch", 1)]),
        ({"micro_batch": 3}, [("train.micro_batch", 1)]),
        ({"micro_batch": 8}, [("train.micro_batch", size) for size in (1, 2, 4)]),
        ({"micro_batch": 8, "train_tokens": 4000},
         [("train.max_tokens_per_gpu", 2000), ("train.max_tokens_per_gpu", 1000)]),
        ({"recompute": "none"}, [("train.gradient_checkpointing", True)]),
        ({"recompute": "none", "engine": "megatron"}, []),
        ({"recompute": "selective"}, []),
        ({"loss": "none"}, []),
        ({"loss": "parallel"}, []),
        ({"loss": "triton"}, []),
        ({"loss": "float32"}, [("train.use_liger", True)]),
        ({"reference": True}, []),
        ({"method": "full"}, [("train.type", "lora")]),
        ({"method": "full", "reference": True}, [("train.beta", 0.0), ("train.type", "lora")]),
        ({"completion_tokens": 512}, []),
        ({"completion_tokens": 513}, [("rollout.max_completion_length", 256)]),
        ({"max_pixels": 401_408}, []),
        ({"max_pixels": 401_409}, [("data.max_pixels", 401_408)]),
        ({"engine": "torch"}, []),
        ({"engine": "torch", "ranks": 2}, [("deepspeed.stage", 2), ("deepspeed.stage", 3)]),
        ({"engine": "fsdp", "ranks": 2}, []),
        ({"engine": "deepspeed"}, [("deepspeed.offload_optimizer", True)]),
        ({"engine": "deepspeed", "zero_offload_optimizer": True}, []),
        ({"engine": "deepspeed", "zero_offload_optimizer": True, "ranks": 2, "zero_stage": 2},
         [("deepspeed.stage", 3)]),
        ({"engine": "deepspeed", "zero_offload_optimizer": True, "ranks": 2, "zero_stage": 3},
         [("deepspeed.offload_param", True)]),
        ({**OFFLOADED, "rollout": "server", "sync_groups": 15}, [("sync.move_model_batches", 16)]),
        ({**OFFLOADED, "rollout": "server", "sync_groups": 16}, []),
        ({**OFFLOADED, "rollout": "generate"}, []),
        ({"rollout": "server", "sync_groups": 1}, []),
    ],
)  # fmt: skip
def test_what_is_not_in_force_yet_is_offered(
    change: dict[str, Any], edits: list[tuple[str, Any]]
) -> None:
    assert offered(replace(LEAN, **change)) == edits


@pytest.mark.parametrize(
    ("change", "edits"),
    [
        ({"sleep_level": 0}, [("vllm.sleep_level", 1)]),
        ({"sleep_level": 2}, []),
        ({"eager": False}, [("vllm.enforce_eager", True)]),
        ({"tensor_parallel": 4}, []),
    ],
)
def test_an_engine_beside_the_trainer_may_be_smaller(
    change: dict[str, Any], edits: list[tuple[str, Any]]
) -> None:
    setup = replace(COLOCATED, rollout_engine=replace(ROOMY, **change))
    shares = [(SHARE, 0.05), (SHARE, 0.3)]
    assert offered(setup) == [*shares, *edits]
    assert offered(replace(setup, rollout="server")) == []


def test_what_an_engine_beside_the_trainer_lets_go_is_offered() -> None:
    shares = [(SHARE, 0.05), (SHARE, 0.3)]
    bare = replace(COLOCATED, offload_weights=False, offload_optimizer=False)
    assert offered(bare) == [*shares, ("offload.model", True), ("offload.optimizer", True)]


@pytest.mark.parametrize(
    ("ranks", "now", "sizes"),
    [(1, 1, []), (4, 1, [2, 4]), (4, 2, [4]), (4, 4, []), (8, 1, [2, 4]), (6, 1, [2])],
)
def test_engines_may_span_cards_that_divide_ranks_and_heads(
    ranks: int, now: int, sizes: list[int]
) -> None:
    # The model has four heads.
    engine = replace(ROOMY, tensor_parallel=now)
    offers = offered(replace(COLOCATED, ranks=ranks, rollout_engine=engine))
    assert [size for knob, size in offers if knob == "vllm.tensor_parallel_size"] == sizes


@pytest.mark.parametrize(
    ("card", "share", "edits"),
    [
        (10**8, 0.05, []),
        (10**8, 0.06, [0.05]),
        (10**8, 0.1, [0.05]),
        (10**8, 0.15, [0.05, 0.1]),
        (10**7, 0.2, []),  # what the engine needs is three tenths of this card
        (10**7, 0.4, [0.3, 0.35]),
    ],
)
def test_a_smaller_share_is_between_what_an_engine_needs_and_what_it_has(
    card: int, share: float, edits: list[float]
) -> None:
    engine = replace(ROOMY, memory_share=share, tensor_parallel=1)
    offers = offered(replace(COLOCATED, card_bytes=card, rollout_engine=engine))
    assert [value for knob, value in offers if knob == SHARE] == edits


@pytest.mark.parametrize(
    ("change", "edits"),
    [
        ({}, []),
        ({"zero_offload_parameters": True}, [("deepspeed.offload_param", False)]),
        ({"zero_offload_optimizer": True}, [("deepspeed.offload_optimizer", False)]),
        ({"zero_stage": 3}, [("deepspeed.stage", 2)]),
        ({"zero_stage": 2}, []),
        ({"offload_weights": True}, [("offload.model", False)]),
        ({"offload_optimizer": True}, [("offload.optimizer", False)]),
        ({"rollout": "colocate", "rollout_engine": RolloutEngine(memory_share=0.7)},
         [(SHARE, 0.9)]),
        ({"rollout": "colocate", "rollout_engine": RolloutEngine(memory_share=0.75)},
         [(SHARE, 0.85)]),
        ({"rollout": "colocate", "rollout_engine": RolloutEngine(memory_share=0.85)}, []),
        ({"rollout": "server", "rollout_engine": RolloutEngine(memory_share=0.5)}, []),
    ],
)  # fmt: skip
def test_memory_is_given_for_time_where_something_saves_it(
    change: dict[str, Any], edits: list[tuple[str, Any]]
) -> None:
    offers = [(edit.knob, edit.value) for edit in spending(replace(LEAN, micro_batch=3, **change))]
    assert offers == [*edits, ("train.micro_batch", 6)]


@pytest.mark.parametrize(
    ("knob", "value", "field", "expected"),
    [
        ("train.gradient_checkpointing", True, "recompute", "full"),
        ("train.gradient_checkpointing", False, "recompute", "none"),
        ("train.use_liger", True, "loss", "fused"),
        ("train.use_liger", False, "loss", "bfloat16"),
        ("train.beta", 0.04, "reference", True),
        ("train.beta", 0.0, "reference", False),
        ("data.max_length", 77, "prompt_tokens", 77),
        ("parallel.context", 4, "context_parallel", 4),
        ("sync.move_model_batches", 8, "sync_groups", 8),
    ],
)
def test_an_edit_sets_what_its_knob_is_about(
    knob: str, value: Any, field: str, expected: Any
) -> None:
    before = replace(ALONE, reference=value == 0.0)
    changed = apply(before, knob, value)
    assert changed == replace(before, **{field: expected})


def test_engine_knobs_are_the_engines_and_a_stage_is_deepspeeds() -> None:
    changed = apply(ALONE, "vllm.max_num_seqs", 16)
    assert changed.rollout_engine == replace(ALONE.rollout_engine, max_sequences=16)
    staged = apply(ALONE, "deepspeed.stage", 2)
    assert (staged.engine, staged.zero_stage) == ("deepspeed", 2)
    with pytest.raises(UsageError, match=r"depend on rollout\.temperature; it does"):
        apply(ALONE, "rollout.temperature", 1.0)


def test_values_that_are_tried_ascend() -> None:
    for values in SOLVABLE.values():
        assert list(values) == sorted(set(values))
    assert (SOLVABLE[SHARE][0], SOLVABLE[SHARE][-1]) == (0.1, 0.95)
