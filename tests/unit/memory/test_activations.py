"""What comes and goes within a micro-batch, of a model that one can work out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.memory import Component, Setup
from grpo_doctor.memory.activations import (
    Tokens,
    fragmentation,
    logprob_activations,
    tokens_of,
    train_activations,
)
from grpo_doctor.memory.facts import calibration
from grpo_doctor.memory.layers import backward_bytes, kept_bytes
from tests.unit.memory.tiny import ALONE, TINY, tower

# Of 1000 tokens and 4 rows, 300 of them completions.
ROLLED = replace(ALONE, packing=False, prompt_tokens=700, completion_tokens=300, micro_batch=4)
# Instructions that nobody packed: rows of up to 1500 tokens, usually of 100, are assumed.
READ = replace(ALONE, packing=False, prompt_tokens=4000, micro_batch=4)
SEEING = replace(TINY, vision=tower())
WHOLE = {"freeze_vision": False, "vision_recompute": False}
QWEN2, BACKWARD = 22 * 4 + 6 * 8, 16 * 4 + 12 * 4 + 2 * 8
"""Of a patch: kept by a layer; of the merger and in a layer's backward pass."""
CAPPED = replace(TINY, vocabulary=1000, capped_logits=True)
FACTORS = calibration()


def activations(setup: Setup) -> dict[str, Component]:
    return {entry.name: entry for entry in train_activations(setup, FACTORS)}


def sizes(setup: Setup) -> dict[str, float]:
    """Bytes without what the allocator adds to them."""
    waste = fragmentation(setup, FACTORS)
    return {name: round(entry.bytes / waste) for name, entry in activations(setup).items()}


@pytest.mark.parametrize(
    ("change", "through_decoder", "scored"),
    [
        ({}, 4000, 1200),
        ({"micro_batch": 1}, 1000, 300),
        ({"paired": True}, 8000, 2400),
        ({"context_parallel": 2}, 2000, 600),
        # The longest row, and three of three tenths of its length.
        ({"padding_free": True}, 1900, 570),
        ({"padding_free": True, "micro_batch": 1}, 1000, 300),
    ],
)
def test_of_rollouts_all_tokens_are_read_and_those_of_completions_scored(
    change: dict[str, Any], through_decoder: int, scored: int
) -> None:
    tokens = tokens_of(replace(ROLLED, **change), FACTORS)
    assert tokens == Tokens(through_decoder, scored, 0)


@pytest.mark.parametrize(
    ("change", "tokens"),
    [
        ({"packing": True}, 16_000),
        ({"packing": True, "paired": True}, 32_000),
        ({}, 6000),
        ({"prompt_tokens": 1000}, 4000),
        ({"longest_row_tokens": 400}, 1600),
        ({"longest_row_tokens": 400, "usual_row_tokens": 500}, 2000),
        ({"padding_free": True}, 1500 + 3 * 100),
        ({"padding_free": True, "usual_row_tokens": 250}, 1500 + 3 * 250),
        ({"padding_free": True, "prompt_tokens": 80}, 4 * 80),
        ({"context_parallel": 3}, 2000),
    ],
)
def test_of_data_every_token_is_scored_and_rows_are_as_long_as_instructions_are(
    change: dict[str, Any], tokens: int
) -> None:
    assert tokens_of(replace(READ, **change), FACTORS) == Tokens(tokens, tokens, 0)


def test_images_are_a_part_of_their_rows() -> None:
    seeing: dict[str, Any] = {"model": SEEING, "max_pixels": 16 * 600}  # 600 tokens
    rolled = replace(ROLLED, **seeing)
    assert tokens_of(rolled, FACTORS) == Tokens(4000, 1200, 4 * 600)
    assert tokens_of(replace(rolled, prompt_tokens=500), FACTORS).images == 4 * 500
    read = replace(READ, longest_row_tokens=400, **seeing)
    assert tokens_of(read, FACTORS) == Tokens(4 * 700, 4 * 700, 4 * 600)
    bare = replace(READ, padding_free=True, **seeing)
    assert tokens_of(bare, FACTORS).all == 1500 + 3 * 700


def test_another_micro_batch_may_be_asked_for() -> None:
    assert tokens_of(ROLLED, FACTORS, 2) == Tokens(2000, 600, 0)


@pytest.mark.parametrize(
    ("change", "factor"),
    [
        ({}, 1.35),
        ({"packing": True}, 1.2),
        ({"engine": "megatron"}, 1.2),
        ({"expandable_segments": True}, 1.05),
        ({"expandable_segments": True, "packing": True}, 1.05),
    ],
)
def test_rows_of_one_length_fragment_memory_less(change: dict[str, Any], factor: float) -> None:
    assert fragmentation(replace(ROLLED, **change), FACTORS) == factor


LAST = 1000 * 8 * 10
"""The last norm's float32 copy, its output and its input."""
LAYER = 1000 * (kept_bytes(ALONE) + backward_bytes(ALONE)) + 2 * 10 * 30
"""And a gradient of the MLP before it is added."""


def test_recomputing_keeps_the_inputs_of_layers_and_one_layer_at_a_time() -> None:
    assert sizes(ALONE) == {
        "checkpoints": 1000 * 2 * 10 * 4 + LAST,
        "one layer, recomputed": LAYER,
    }
    assert sizes(replace(ALONE, activations_on_host=True))["checkpoints"] == LAST
    frozen = replace(ALONE, method="lora")
    assert sizes(frozen)["checkpoints"] == 1000 * (2 * 4 + 6) * 10
    wide = replace(ALONE, trained_dtype_bytes=4)  # the residual stream is in float32
    assert sizes(wide)["checkpoints"] == 1000 * (4 * 4 + 8) * 10


@pytest.mark.parametrize(
    ("change", "layers"),
    [
        ({"pipeline_parallel": 2, "ranks": 2}, 2 * 2),  # two micro-batches on their way
        ({"pipeline_parallel": 8, "ranks": 8}, 8),
        ({"engine": "device_map", "ranks": 2}, 2),
        ({"engine": "device_map", "ranks": 8}, 1),
    ],
)
def test_layers_of_a_card_times_micro_batches_on_their_way(
    change: dict[str, Any], layers: int
) -> None:
    assert sizes(replace(ALONE, **change))["checkpoints"] == 1000 * 20 * layers + LAST


def test_without_recomputing_every_layer_keeps_all_of_it() -> None:
    stored = replace(ALONE, recompute="none")
    assert sizes(stored)["activations"] == 1000 * kept_bytes(ALONE) * 4 + LAST
    fused = replace(stored, engine="megatron", recompute="selective")
    assert sizes(fused)["activations"] == 1000 * 440 * 4
    assert sizes(replace(fused, tensor_parallel=2, ranks=2))["activations"] == 1000 * 220 * 4
    # Half of all matrix products' outputs, which are 120 wide, the layer's input, and attention's.
    selective = replace(stored, recompute="selective")
    assert sizes(selective)["activations"] == 1000 * 2 * (60 + 10 + 20) * 4 + LAST


def test_eager_attention_has_a_score_for_each_pair_of_a_row() -> None:
    plain = replace(ALONE, attention="flash", micro_batch=2)
    eager = replace(plain, attention="eager")
    pairs = 2 * 4 * 1000**2  # of two rows and four heads

    def added(name: str, **change: Any) -> float:
        return sizes(replace(eager, **change))[name] - sizes(replace(plain, **change))[name]

    assert added("one layer, recomputed") == pytest.approx(10 * pairs, abs=1)
    assert added("activations", recompute="none") == pytest.approx(6 * pairs * 4, abs=1)


@pytest.mark.parametrize(
    ("change", "entry", "size"),
    [
        ({"loss": "float32"}, "logits and loss", 1200 * 1000 * 12),
        # Of one row in four 4 B, or 6 B of a chunk of 128 tokens.
        ({"loss": "bfloat16"}, "logits and loss", (1200 * 4 + 128 * 6) * 1000),
        ({"loss": "bfloat16", "micro_batch": 1}, "logits and loss", (300 * 4 + 128 * 6) * 1000),
        # Logits of whole rows and their gradient; in float32 twice as much, or of those scored.
        ({"loss": "entropy", "whole_row_logits": True}, "logits and loss", 4000 * 4 * 1000),
        ({"loss": "upcast", "whole_row_logits": True}, "logits and loss", 4000 * 8 * 1000),
        ({"loss": "upcast"}, "logits and loss", 1200 * 16 * 1000),
        ({"loss": "flash", "scores_prompts": True}, "logits and loss", 4000 * 10 * 1000),
        ({"loss": "parallel", "engine": "megatron", "tensor_parallel": 2, "ranks": 2},
         "logits and loss", 600_000 * 12),
        # TRL's kernel has a tile, the head's input and, where it is trained, its gradient.
        ({"loss": "triton"}, "logits and loss", 65_536 * 1200 + 40 * 1200 + 60_000),
        ({"loss": "triton", "method": "lora"}, "logits and loss", 65_536 * 1200 + 40 * 1200),
        # The trained head's own gradient beside that of the logits.
        ({"loss": "inplace", "micro_batch": 1, "vocabulary": 10**6, "completion_tokens": 1,
          "prompt_tokens": 9}, "logits and loss", 2 * 10**6 + 2 * 10**7),
        ({"loss": "none", "method": "lora"}, "one layer, recomputed", None),
        ({"loss": "fused", "method": "lora"}, "one layer, recomputed", None),
        ({"loss": "fused", "recompute": "none"}, "one layer's gradients",
         4000 * backward_bytes(ALONE)),
        # At the end of the backward pass three gradients of a table that is the head too.
        ({"loss": "fused", "vocabulary": 10**6, "tied": True}, "gradients of tables",
         3 * 2 * 10**7 - 4000 * 160),
        ({"loss": "none", "vocabulary": 10**6, "tied": True}, "gradients of tables",
         2 * 10**7 - 4000 * 160),
        ({"loss": "none", "vocabulary": 10**6}, "gradients of tables", 2 * 10**7 - 4000 * 160),
    ],
)  # fmt: skip
def test_the_worst_of_loss_one_layer_and_tables_counts(
    change: dict[str, Any], entry: str, size: int | None
) -> None:
    model = replace(TINY, vocabulary=change.pop("vocabulary", 1000), tied=change.pop("tied", False))
    entries = sizes(replace(ROLLED, model=model, **change))
    assert entry in entries
    assert len(entries) == 2
    if size is not None:
        assert entries[entry] == pytest.approx(size, abs=1)


@pytest.mark.parametrize(("loss", "each"), [("inplace", 6), ("entropy", 8), ("float32", 14)])
def test_capped_logits_have_the_result_of_a_tanh_beside_them(loss: str, each: int) -> None:
    entries = sizes(replace(ROLLED, model=CAPPED, loss=loss))
    assert entries["logits and loss"] == 1200 * 1000 * each


@pytest.mark.parametrize(
    ("kind", "change", "size"),
    [
        # 40 patches of 24 numbers in float32, width 4, MLP 8; frozen, one layer is there.
        ("qwen2_vl", {}, 3840 + 40 * 36 * 4),
        ("qwen2_5_vl", {}, 3840 + 40 * 36 * 4),
        ("siglip", {}, 3840 + 40 * (10 * 4 + 2 * 8)),
        # A layer keeps 22 widths and, with a sigmoid or gates of its own, six or eight of the MLP.
        ("qwen2_vl", {"freeze_vision": False}, 3840 + 40 * (2 * 4 * 3 + QWEN2 + BACKWARD)),
        ("qwen2_vl", WHOLE, 3840 + 40 * (3 * QWEN2 + BACKWARD)),
        ("qwen2_5_vl", WHOLE, 3840 + 40 * (3 * (30 * 4 + 8 * 8) + BACKWARD)),
        ("qwen3_vl", WHOLE, 3840 + 40 * (3 * (22 * 4 + 4 * 8) + BACKWARD)),
        # 3 B of each pair of patches.
        ("qwen2_vl", {"old_vision_tower": True}, 3840 + 40 * 36 * 4 + 4800),
        ("qwen2_vl", {"old_vision_tower": True, "freeze_vision": False},
         3840 + 4800 + 40 * (2 * 4 * 3 + QWEN2 + BACKWARD)),
        ("qwen2_vl", {"old_vision_tower": True, **WHOLE},
         3840 + 3 * 4800 + 40 * (3 * QWEN2 + BACKWARD)),
        ("qwen3_vl", {"old_vision_tower": True}, 3840 + 40 * 36 * 4),
    ],
)  # fmt: skip
def test_a_vision_tower_keeps_pixels_and_layers(
    kind: Any, change: dict[str, Any], size: float
) -> None:
    setup = replace(ALONE, model=replace(TINY, vision=tower(kind)), max_pixels=160, **change)
    assert sizes(setup)["vision tower"] == pytest.approx(size, abs=1)
    assert "vision tower" not in sizes(replace(setup, max_pixels=None))
    assert "vision tower" not in sizes(replace(setup, model=TINY))


@pytest.mark.parametrize(
    ("change", "entry", "size"),
    [
        ({"loss": "float32"}, "logits", 1200 * 1000 * 10),
        ({"loss": "bfloat16", "logprob_micro_batch": 8}, "logits", 2400 * 1000 * 4),
        ({"loss": "inplace", "tensor_parallel": 2}, "logits", 1200 * 1000 * 1),
        ({"loss": "triton"}, "logits", 65_536 * 1200),
        ({"loss": "inplace", "model": CAPPED}, "logits", 1200 * 1000 * 4),
        ({"loss": "fused"}, "one layer", 4000 * (8 * 10 + 6 * 30)),
        ({"loss": "none", "method": "lora"}, "one layer", 4000 * (12 * 10 + 8 * 30)),
        ({"loss": "none", "method": "lora", "lora_targets": "attention"}, "one layer",
         4000 * (8 * 10 + 6 * 30)),
    ],
)  # fmt: skip
def test_scoring_without_gradients_takes_logits_or_a_layer(
    change: dict[str, Any], entry: str, size: int
) -> None:
    (component,) = logprob_activations(replace(ROLLED, **change), FACTORS)
    assert (component.name, component.bytes) == (entry, round(1.35 * size))
    assert component.spare_bytes == pytest.approx(0.3 * size, abs=1)


def test_what_fragments_can_be_given_back_where_memory_is_short() -> None:
    entry = activations(ALONE)["checkpoints"]
    assert (entry.bytes, entry.spare_bytes) == (192_000, 24_000)
    compact = activations(replace(ALONE, expandable_segments=True))["checkpoints"]
    assert (compact.bytes, compact.spare_bytes) == (168_000, 0)
    loss = activations(replace(ALONE, loss="amp"))["logits and loss"]
    needed = 1.05 * 1000 * 1000 * 16  # of 32 bytes that its passes hold one after the other
    assert loss.bytes - loss.spare_bytes == pytest.approx(needed, abs=2)


@pytest.mark.parametrize(
    ("change", "spread"),
    [
        ({}, FACTORS.spread_activations),
        ({"padding_free": True}, FACTORS.spread_rollout_rows),
        ({"padding_free": True, "micro_batch": 1}, FACTORS.spread_activations),
        ({"completion_tokens": 0}, FACTORS.spread_unknown_rows),
        ({"completion_tokens": 0, "packing": True}, FACTORS.spread_activations),
        ({"completion_tokens": 0, "longest_row_tokens": 9}, FACTORS.spread_activations),
    ],
)
def test_rows_of_a_length_that_nobody_says_are_less_sure(
    change: dict[str, Any], spread: float
) -> None:
    assert activations(replace(ROLLED, **change))["checkpoints"].spread == spread
