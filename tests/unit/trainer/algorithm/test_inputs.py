"""What a model is given for a batch, with and without images."""

from __future__ import annotations

import torch

from grpo_doctor_trainer.algorithm.inputs import generation_inputs, model_inputs
from grpo_doctor_trainer.data.experience import ImageFeatures, TokenBatch
from grpo_doctor_trainer.model.vision import VisionLayout

IMAGE = 99
TOKENS, COMPLETIONS = [[0, 7, 8], [5, 6, IMAGE]], [[3, 4], [IMAGE, 2]]


def features(*indices: tuple[int, ...], companion: bool, typed: bool = False) -> ImageFeatures:
    """Two images of four and eight patches of three values each."""
    layout = VisionLayout(IMAGE, (IMAGE,), 2, 3, companion=companion, typed=typed)
    pixels = torch.arange(36.0).view(12, 3)
    grid = torch.tensor([[1, 2, 2], [1, 2, 4]])
    positions = torch.tensor([[[0, 1, 2]] * 3, [[0, 1, 5]] * 3])
    return ImageFeatures(pixels, grid, indices, positions, layout)


def batch(images: ImageFeatures | None) -> TokenBatch:
    tokens, completions = torch.tensor(TOKENS), torch.tensor(COMPLETIONS)
    mask = torch.tensor([[0, 1, 1], [1, 1, 1]])
    return TokenBatch(tokens, mask, completions, torch.tensor([[1, 1], [1, 0]]), images)


def test_text_is_counted_from_its_first_token() -> None:
    inputs = model_inputs(batch(None))
    assert set(inputs) == {"input_ids", "attention_mask", "position_ids"}
    assert inputs["input_ids"].tolist() == [[0, 7, 8, 3, 4], [5, 6, IMAGE, IMAGE, 2]]
    assert inputs["attention_mask"].tolist() == [[0, 1, 1, 1, 1], [1, 1, 1, 1, 0]]
    assert inputs["position_ids"].tolist() == [[0, 0, 1, 2, 3], [0, 1, 2, 3, 3]]


def test_images_of_the_rows_follow_each_other_and_completions_ask_for_none() -> None:
    inputs = model_inputs(batch(features((), (1, 0), companion=True)))
    assert inputs["input_ids"].tolist() == [[0, 7, 8, 3, 4], [5, 6, IMAGE, 0, 2]]
    assert inputs["pixel_values"][:, 0].tolist() == [*range(12, 36, 3), *range(0, 12, 3)]
    assert inputs["image_grid_thw"].tolist() == [[1, 2, 4], [1, 2, 2]]
    assert inputs["position_ids"].shape == (3, 2, 5)
    assert inputs["position_ids"][0].tolist() == [[0, 1, 2, 3, 4], [0, 1, 5, 6, 7]]


def test_a_batch_without_an_image_gets_a_companion_where_other_ranks_wait() -> None:
    inputs = model_inputs(batch(features((), (), companion=True)))
    assert inputs["input_ids"][2].tolist() == [0, 0, IMAGE, 0, 0]
    assert inputs["attention_mask"][2].tolist() == [0, 0, 1, 0, 0]
    assert inputs["position_ids"].shape == (3, 3, 5)
    assert not inputs["position_ids"][:, 2].any()
    assert inputs["pixel_values"].shape == (4, 3)
    assert not inputs["pixel_values"].any()
    assert inputs["image_grid_thw"].tolist() == [[1, 2, 2]]


def test_elsewhere_it_gets_none() -> None:
    inputs = model_inputs(batch(features((), (), companion=False)))
    assert len(inputs["input_ids"]) == 2
    assert "pixel_values" not in inputs


def test_generation_needs_no_companion() -> None:
    tokens, mask = torch.tensor(TOKENS), torch.ones(2, 3, dtype=torch.long)
    for images in (None, features((), (), companion=True)):
        assert set(generation_inputs(tokens, mask, images)) == {"input_ids", "attention_mask"}


def test_which_tokens_are_images_is_told_to_a_model_that_asks() -> None:
    tokens, mask = torch.tensor(TOKENS), torch.ones(2, 3, dtype=torch.long)
    asking = features((), (0,), companion=False, typed=True)
    inputs = generation_inputs(tokens, mask, asking)
    assert inputs["mm_token_type_ids"].tolist() == [[0, 0, 0], [0, 0, 1]]
    without = generation_inputs(tokens, mask, features((), (), companion=False, typed=True))
    assert "mm_token_type_ids" not in without
    silent = generation_inputs(tokens, mask, features((), (0,), companion=False))
    assert "mm_token_type_ids" not in silent
