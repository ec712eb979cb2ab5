"""A batch keeps what belongs together: rows, images and masks."""

from __future__ import annotations

import pytest
import torch

from grpo_doctor_trainer.data.experience import (
    Experience,
    ImageFeatures,
    TokenBatch,
    mask_after_end,
)
from grpo_doctor_trainer.model.vision import VisionLayout

LAYOUT = VisionLayout(9, (9,), 2, 3, companion=False, typed=False)
PIXELS = torch.arange(36.0).view(12, 3)  # two images, of four and of eight patches
GRID = torch.tensor([[1, 2, 2], [1, 2, 4]])


def images(*indices: tuple[int, ...]) -> ImageFeatures:
    return ImageFeatures(PIXELS, GRID, indices, torch.zeros(len(indices), 3, 4).long(), LAYOUT)


@pytest.mark.parametrize(
    ("indices", "patches", "grid"),
    [
        (((0,),), range(4), [0]),
        (((1,),), range(4, 12), [1]),
        (((), (1, 0)), [*range(4, 12), *range(4)], [1, 0]),
        (((0,), (0,)), [*range(4), *range(4)], [0, 0]),
        (((), ()), [], []),
    ],
)
def test_images_of_completions_follow_each_other(
    indices: tuple[tuple[int, ...], ...], patches: list[int], grid: list[int]
) -> None:
    features = images(*indices)
    pixels, sizes = features.gathered()
    assert features.counts == tuple(len(each) for each in indices)
    assert pixels.equal(PIXELS[list(patches)])
    assert sizes.equal(GRID[grid])


def batch(pictures: ImageFeatures | None = None) -> TokenBatch:
    prompts = torch.tensor([[0, 5, 6], [5, 6, 0], [5, 6, 7]])
    mask = torch.tensor([[0, 1, 1], [1, 1, 0], [1, 1, 1]])
    completions = torch.tensor([[1, 2], [3, 0], [4, 4]])
    return TokenBatch(prompts, mask, completions, torch.tensor([[1, 1], [1, 0], [1, 1]]), pictures)


def test_tokens_are_counted_with_and_without_padding() -> None:
    assert (len(batch()), batch().places, batch().filled) == (3, 9 + 6, 7 + 5)


def test_prompts_are_equal_in_their_tokens_whatever_the_padding() -> None:
    rows, prompt_of = batch().distinct_prompts()
    assert (rows.tolist(), prompt_of.tolist()) == ([0, 2], [0, 0, 1])


def test_prompts_with_other_images_differ() -> None:
    rows, prompt_of = batch(images((0,), (1,), (1,))).distinct_prompts()
    assert (rows.tolist(), prompt_of.tolist()) == ([0, 1, 2], [0, 1, 2])
    rows, _ = batch(images((0,), (0,), (1,))).distinct_prompts()
    assert rows.tolist() == [0, 2]


def test_parts_are_cut_in_order_and_the_last_may_be_smaller() -> None:
    full = batch(images((0,), (), (1,)))
    parts = list(full.parts(2))
    assert [part.completion_tokens.tolist() for part in parts] == [[[1, 2], [3, 0]], [[4, 4]]]
    assert [part.images.indices for part in parts if part.images] == [((0,), ()), ((1,),)]
    assert [len(part) for part in full.parts(3)] == [3]


def test_what_is_selected_is_selected_everywhere() -> None:
    values = torch.arange(6.0).view(3, 2)
    every = Experience(batch(), torch.arange(3.0), values, None, values + 10)
    some = every.select(torch.tensor([2, 0]))
    assert some.advantages.tolist() == [2, 0]
    assert some.tokens.completion_mask.tolist() == [[1, 1], [1, 1]]
    assert some.old_logprobs is not None
    assert some.old_logprobs.tolist() == [[4, 5], [0, 1]]
    assert some.sampling_logprobs is not None
    assert some.sampling_logprobs.tolist() == [[14, 15], [10, 11]]
    assert some.reference_logprobs is None
    assert some.kept is None


def test_only_completions_that_are_kept_are_in_the_loss() -> None:
    every = Experience(batch(), torch.zeros(3), None, None)
    assert every.loss_mask.tolist() == [[1, 1], [1, 0], [1, 1]]
    some = Experience(batch(), torch.zeros(3), None, None, kept=torch.tensor([1, 1, 0]))
    assert some.loss_mask.tolist() == [[1, 1], [1, 0], [0, 0]]


def test_a_completion_counts_up_to_its_first_end() -> None:
    tokens = torch.tensor([[1, 7, 2, 7], [7, 1, 1, 1], [1, 2, 3, 4], [1, 8, 0, 0]])
    assert mask_after_end(tokens, (7, 8)).tolist() == [
        [1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1], [1, 1, 0, 0],
    ]  # fmt: skip
