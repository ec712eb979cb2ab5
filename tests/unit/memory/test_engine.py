"""A rollout engine's budget on a card, of a model that one can work out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.memory import RolloutEngine, Setup
from grpo_doctor.memory.engine import (
    Engine,
    cache_bytes_per_token,
    engine_of,
    least_share,
    weight_bytes,
)
from grpo_doctor.memory.facts import calibration
from tests.unit.memory.tiny import ALONE, EXPERTS, LATENT, TINY, tower

WEIGHTS = 2 * TINY.parameters
# Logits of 256 sequences in float32, and 8192 tokens in 16 bits through an MLP of two 30 wide.
WORKING = 4 * 256 * 1000 + 2 * 8192 * (2 * 30 + 4 * 10)
SEQUENCE = 160 * 1300  # keys and values of 1000 tokens of a prompt and 300 of a completion
HALF = replace(ALONE, completion_tokens=300, rollout_engine=RolloutEngine(memory_share=0.5))


def budgeted(room: int, **engine: Any) -> Engine:
    """An engine whose share is what weights and buffers take, and some more bytes."""
    setup = replace(HALF, card_bytes=2 * (WEIGHTS + WORKING + room))
    return engine_of(engine_with(setup, **engine), calibration())


def engine_with(setup: Setup, **change: Any) -> Setup:
    return replace(setup, rollout_engine=replace(setup.rollout_engine, **change))


def test_a_share_is_weights_buffers_and_a_cache() -> None:
    engine = budgeted(3 * SEQUENCE)
    assert engine.weights.bytes == WEIGHTS
    assert engine.cache.bytes == WORKING + 3 * SEQUENCE
    assert engine.refusals == ()


def test_copies_of_an_engine_divide_their_experts() -> None:
    mixed = replace(HALF, model=replace(TINY, experts=EXPERTS))
    experts = mixed.model.expert_parameters
    assert experts
    saved = weight_bytes(mixed) - weight_bytes(engine_with(mixed, data_parallel=4))
    assert saved == pytest.approx(2 * experts * 3 / 4, abs=1)


def test_sglangs_buffers_are_not_in_its_share() -> None:
    engine = budgeted(3 * SEQUENCE, name="sglang")
    assert engine.cache.bytes == 2 * WORKING + 3 * SEQUENCE


def test_images_make_the_first_forward_pass_longer() -> None:
    seeing = replace(HALF, model=replace(TINY, vision=tower()), max_pixels=16 * 10_000)
    working = 4 * 256 * 1000 + 2 * 10_000 * 100
    card_bytes = 2 * (weight_bytes(seeing) + working + SEQUENCE)
    assert least_share(replace(seeing, card_bytes=card_bytes)) == 0.5


@pytest.mark.parametrize(
    ("room", "words"),
    [
        (SEQUENCE, None),
        (SEQUENCE - 1, "has no room for one sequence of 1300 tokens"),
        (0, "has no room for one sequence of 1300 tokens"),
        (-1, "vllm may use 0.0 GiB, but its weights and buffers alone need 0.0 GiB"),
    ],
)
def test_an_engine_refuses_a_share_that_holds_no_sequence(room: int, words: str | None) -> None:
    refusals = budgeted(room).refusals
    assert len(refusals) == (words is not None)
    if words is not None:
        assert words in refusals[0]
    # A cache of a size of its own needs no share.
    assert budgeted(room, cache_bytes=SEQUENCE).refusals == ()
    (refusal,) = budgeted(room, cache_bytes=SEQUENCE - 1).refusals
    assert "has no room" in refusal


def test_no_cache_is_less_than_none() -> None:
    engine = budgeted(-WORKING - 1)
    assert engine.cache.bytes == 0


@pytest.mark.parametrize(("cards", "each"), [(1, 160), (2, 80), (4, 80)])
def test_key_heads_are_copied_where_there_are_too_few(cards: int, each: int) -> None:
    assert cache_bytes_per_token(engine_with(HALF, tensor_parallel=cards)) == each


def test_a_compressed_cache_is_on_every_card() -> None:
    latent = replace(HALF, model=replace(TINY, latent=LATENT))
    assert cache_bytes_per_token(latent) == 2 * 4 * (7 + 3)
    assert cache_bytes_per_token(engine_with(latent, tensor_parallel=2)) == 80


@pytest.mark.parametrize(
    ("bits", "cards", "size"),
    [
        (16, 1, WEIGHTS),
        (16, 2, WEIGHTS / 2),
        (8, 1, 40_000 + 6_090 * 8.16 / 8),  # tables stay in 16 bits
        (4, 1, 40_000 + 6_090 * 4.16 / 8),
    ],
)
def test_quantized_weights_have_scales(bits: int, cards: int, size: float) -> None:
    setup = replace(engine_with(HALF, tensor_parallel=cards), base_bits=bits)
    assert weight_bytes(setup) == round(size)


@pytest.mark.parametrize(
    ("engine", "graphs"),
    [
        ({"version": "0.20.0"}, 4 << 24),
        ({"version": "0.21.0"}, 0),
        ({"version": None}, 0),
        ({"version": "0.20.0", "eager": True}, 0),
        ({"version": "0.21.0", "name": "sglang"}, 4 << 25),
        ({"version": "0.5.0", "name": "sglang"}, 4 << 25),
    ],
)
def test_graphs_outside_the_share(engine: dict[str, Any], graphs: int) -> None:
    assert budgeted(SEQUENCE, **engine).graphs.bytes == graphs


def test_asleep_only_context_and_graphs_are_left() -> None:
    engine = budgeted(SEQUENCE, version="0.20.0", sleep_level=1)
    assert [part.bytes for part in engine.asleep] == [805_306_368, 4 << 24]
    divided = budgeted(SEQUENCE, version="0.20.0", sleep_level=1, tensor_parallel=2)
    assert divided.asleep[0].bytes == 805_306_368 + 1_825_361_101
    awake = budgeted(SEQUENCE, version="0.20.0")
    assert awake.asleep == awake.awake == (awake.weights, awake.cache, awake.graphs)


@pytest.mark.parametrize(
    ("spare", "name", "share"),
    [(0, "vllm", 0.5), (-1, "vllm", 0.55), (0, "sglang", 0.05)],
)
def test_the_least_share_holds_weights_buffers_and_one_sequence(
    spare: int, name: str, share: float
) -> None:
    card_bytes = 2 * (WEIGHTS + WORKING + SEQUENCE + spare)
    assert least_share(engine_with(replace(HALF, card_bytes=card_bytes), name=name)) == share


def test_a_limit_of_its_own_is_what_one_sequence_takes() -> None:
    assert budgeted(160 * 2000, max_model_len=2000).refusals == ()
    (refusal,) = budgeted(160 * 2000 - 1, max_model_len=2000).refusals
    assert "one sequence of 2000 tokens" in refusal
    # Where nothing is rolled out, a prompt is followed by one token.
    silent = replace(HALF, completion_tokens=0, card_bytes=2 * (WEIGHTS + WORKING + 160 * 1001))
    assert engine_of(silent, calibration()).refusals == ()
