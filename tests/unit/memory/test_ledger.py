from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.errors import UsageError
from grpo_doctor.memory import (
    GIB,
    Component,
    Phase,
    Pool,
    RolloutEngine,
    Setup,
    card_bytes,
    ledger_of,
    model_shape,
)
from grpo_doctor.memory.host import pinned
from tests.unit.memory.jobs import LARGE, TEXT, VISION

SEVEN = model_shape("Qwen/Qwen2.5-7B")
P = SEVEN.parameters
FULL = Setup(SEVEN, card_bytes("A100-80G"), ranks=4, prompt_tokens=2048, packing=True)


def entries(setup: Setup, phase: str = "train") -> dict[str, int]:
    chosen = next(p for p in ledger_of(setup).train.phases if p.name == phase)
    return {entry.name: entry.bytes for entry in chosen.components}


def states(setup: Setup) -> int:
    sizes = entries(setup)
    names = ("trained weights", "gradients", "optimizer moments", "float32 master weights")
    return sum(sizes.get(name, 0) for name in names)


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (0, 16 * P),
        (1, 4 * P + 12 * P / 4),
        (2, 2 * P + 14 * P / 4),
        (3, 16 * P / 4),
    ],
)
def test_zero_divides_what_its_stage_says(stage: int, expected: float) -> None:
    setup = replace(FULL, engine="deepspeed", zero_stage=stage)
    assert states(setup) == pytest.approx(expected, rel=1e-6)


def test_plain_bf16_keeps_eight_bytes_and_foreach_adds_two() -> None:
    setup = replace(FULL, ranks=1, optimizer="adamw_foreach")
    assert states(setup) == pytest.approx(8 * P, rel=1e-6)
    assert entries(setup, "optimizer")["foreach scratch"] == pytest.approx(2 * P, rel=1e-6)
    assert "foreach scratch" not in entries(replace(setup, optimizer="adamw"), "optimizer")


def test_megatron_takes_18_bytes_alone_and_divides_12_over_data_parallel_ranks() -> None:
    alone = replace(FULL, engine="megatron", ranks=2, tensor_parallel=2)
    wide = replace(alone, ranks=8)
    assert sum(
        entries(alone)[name]
        for name in ("trained weights", "gradients", "master weights and moments")
    ) == pytest.approx(18 * P / 2, rel=1e-3)
    assert entries(wide)["master weights and moments"] == pytest.approx(12 * P / 2 / 4, rel=1e-3)


def test_lora_trains_its_adapters_alone() -> None:
    lora = replace(FULL, ranks=1, method="lora", lora_rank=8)
    adapters = entries(lora)["trained weights"] / 4
    assert adapters == 20_185_088  # what PEFT counts for r=8 on all linear layers
    assert entries(lora)["frozen weights"] == 2 * P


def test_four_bits_leave_tables_whole() -> None:
    quantized = replace(FULL, ranks=1, method="lora", base_bits=4)
    tables = 2 * SEVEN.embedding_parameters
    expected = 2 * tables + (P - tables) * 4.16 / 8
    assert entries(quantized)["frozen weights"] == pytest.approx(expected, rel=1e-3)


def test_a_reference_model_is_there_for_full_training_with_a_kl_term_alone() -> None:
    kl = replace(FULL, reference=True)
    assert entries(kl)["reference model"] == 2 * P
    assert "reference model" not in entries(replace(kl, method="lora"))


def test_activations_grow_with_tokens_and_shrink_with_checkpoints() -> None:
    longer = replace(FULL, prompt_tokens=8192)
    assert entries(longer)["checkpoints"] == pytest.approx(4 * entries(FULL)["checkpoints"])
    stored = entries(replace(longer, recompute="none"))["activations"]
    assert stored > 5 * entries(longer)["checkpoints"]
    divided = replace(longer, context_parallel=4)
    assert entries(divided)["checkpoints"] == pytest.approx(entries(FULL)["checkpoints"])


def test_eager_attention_holds_scores_and_their_gradients_of_one_layer() -> None:
    long = replace(FULL, prompt_tokens=8192, loss="none")
    eager = entries(replace(long, attention="eager"))["one layer, recomputed"]
    fused = entries(long)["one layer, recomputed"]
    assert eager - fused == pytest.approx(1.2 * 10 * SEVEN.heads * 8192**2, rel=0.01)


@pytest.mark.parametrize(
    ("gib", "spread", "spare", "state"),
    [
        (60, 0.1, 0, "fits"),
        (60, 0.3, 0, "tight"),  # 41 to 88 of 80 GiB
        (90, 0.3, 0, "tight"),
        (90, 0.05, 0, "oom"),
        (90, 0.05, 20, "tight"),  # 90 GiB with room, 70 at the least
    ],
)
def test_yes_and_no_are_said_only_where_the_whole_interval_is_on_one_side(
    gib: int, spread: float, spare: int, state: str
) -> None:
    entry = Component("weights", gib * GIB, "", "", None, spread, spare * GIB)
    pool = Pool("train", 80 * GIB, (Phase("train", (entry,)), Phase("init", ())))
    low, high = pool.decisive.interval.low, pool.decisive.interval.high
    assert pool.state == state
    assert (high <= 80 * GIB, low > 80 * GIB) == (state == "fits", state == "oom")


def test_a_fused_loss_keeps_no_logits() -> None:
    assert "logits and loss" in entries(replace(FULL, prompt_tokens=8192))
    assert "logits and loss" not in entries(replace(FULL, prompt_tokens=8192, loss="fused"))


def test_rows_without_padding_take_their_own_lengths() -> None:
    padded = replace(FULL, packing=False, micro_batch=8, prompt_tokens=4096)
    bare = replace(padded, padding_free=True)
    assert entries(bare)["checkpoints"] < 0.5 * entries(padded)["checkpoints"]


def test_vllm_gets_its_share_of_the_whole_card() -> None:
    sizes = entries(VISION, "rollout")
    engine = sizes["engine weights"] + sizes["engine cache and buffers"]
    assert engine == pytest.approx(0.6 * VISION.card_bytes, rel=1e-6)


def test_cache_bytes_beat_the_share() -> None:
    engine = replace(VISION.rollout_engine, cache_bytes=4 * GIB)
    sizes = entries(replace(VISION, rollout_engine=engine), "rollout")
    assert sizes["engine cache and buffers"] < 10 * GIB


@pytest.mark.parametrize(("version", "outside"), [("0.19.0", True), ("0.21.0", False)])
def test_cuda_graphs_lie_outside_the_share_before_vllm_0_21(version: str, outside: bool) -> None:
    engine = replace(VISION.rollout_engine, version=version)
    assert (
        bool(entries(replace(VISION, rollout_engine=engine), "rollout")["CUDA graphs"]) == outside
    )


def test_sleep_takes_the_cache_from_training() -> None:
    awake = replace(VISION, rollout_engine=replace(VISION.rollout_engine, sleep_level=0))
    assert "engine cache and buffers" in entries(awake)
    assert "engine cache and buffers" not in entries(VISION)


def test_offload_takes_weights_from_the_rollout_alone() -> None:
    assert "frozen weights" not in entries(VISION, "rollout")
    assert "frozen weights" in entries(VISION, "train")
    assert "frozen weights" in entries(replace(VISION, offload_weights=False), "rollout")


def test_a_share_too_small_for_the_weights_is_refused() -> None:
    engine = replace(TEXT.rollout_engine, memory_share=0.1)
    assert ledger_of(replace(TEXT, rollout_engine=engine)).state == "invalid"


def test_zero_3_gathers_the_whole_model_for_its_own_generate() -> None:
    alone = replace(LARGE, rollout="generate")
    assert entries(alone, "rollout")["gathered for generation"] > 130 * GIB


def test_the_server_is_a_pool_of_its_own() -> None:
    server = Setup(LARGE.model, LARGE.card_bytes, ranks=2, rollout="server",
                   rollout_engine=RolloutEngine(tensor_parallel=2))  # fmt: skip
    ledger = ledger_of(replace(LARGE, rollout="server"), server=server)
    assert [pool.role for pool in ledger.pools] == ["train", "rollout"]
    assert ledger.worst.role in ("train", "rollout")


def test_the_host_holds_what_is_offloaded_in_powers_of_two() -> None:
    assert [pinned(size * GIB) / GIB for size in (6, 8, 10, 12)] == [8, 8, 16, 16]
    setup = replace(LARGE, host_bytes=512 * GIB, zero_offload_optimizer=True, method="full")
    ledger = ledger_of(setup)
    assert ledger.host is not None
    assert ledger.host.peak.bytes > 1000 * GIB
    assert ledger.host.state == "oom"


def test_a_verdict_follows_the_interval() -> None:
    phase = Phase("train", (Component("weights", 70 * GIB, "", "", None, 0.05),))
    states = [Pool("train", size * GIB, (phase,)).state for size in (80, 71, 60)]
    assert states == ["fits", "tight", "oom"]
    assert phase.interval.low < phase.bytes < phase.interval.high


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        ("A100-80G", 79.2),
        ("A100-40G", 39.4),
        ("NVIDIA A100-SXM4-40GB", 39.4),
        ("H20", 95.0),
        ("NVIDIA H200", 139.7),
        ("RTX 3090", 23.7),
        ("RTX3090-24G", 23.7),
        ("A100", 79.2),
        ("A100-70G", 79.2),  # within an eighth of a card's size it is that card
        ("A100-60G", 60 * 0.985),
        ("A100_80GB", 79.2),
        ("V100-16G", 15.8),
        ("V100", 31.7),
        ("L40S", 44.4),
        ("L4", 22.2),
        ("24", None),
        ("7.5 GiB", 7.5 * 0.985),
        ("48G", 48 * 0.985),
    ],
)
def test_cards_by_name_and_size(name: str, gib: float | None) -> None:
    if gib is None:
        with pytest.raises(UsageError, match="or its memory, --gpus 8x80G"):
            card_bytes(name)
    else:
        assert card_bytes(name) / GIB == pytest.approx(gib, rel=1e-3)


def test_a_card_that_nobody_knows_is_asked_for_its_memory() -> None:
    with pytest.raises(UsageError, match="or its memory, --gpus 8x80G"):
        card_bytes("Frobnicator 9000")


def test_ddp_copies_gradients_into_buckets() -> None:
    """TRL issue 2972: step 1 fits on 96 GB, the optimizer of step 2 does not."""
    setup = replace(FULL, card_bytes=card_bytes("H20"), ranks=8, reference=True,
                    optimizer="adamw_foreach", packing=False, completion_tokens=1024)  # fmt: skip
    assert entries(setup)["DDP buckets"] == 2 * P
    assert ledger_of(setup).state == "oom"
    assert "DDP buckets" not in entries(replace(setup, ranks=1))


def test_frozen_weights_stay_as_they_were_loaded() -> None:
    lora = replace(FULL, ranks=1, method="lora", trained_dtype_bytes=4)
    assert entries(lora)["frozen weights"] == 4 * P
    assert entries(replace(lora, engine="deepspeed", zero_stage=2))["frozen weights"] == 2 * P
