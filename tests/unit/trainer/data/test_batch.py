"""Prompts of a rollout joined: padding, images, and what is said of them."""

from __future__ import annotations

import time
from types import SimpleNamespace

import torch
from PIL import Image

from grpo_doctor_trainer.data.prompts import Prompt, PromptBatch, PromptMaker
from grpo_doctor_trainer.data.rows import Row
from grpo_doctor_trainer.model.vision import VisionLayout

LAYOUT = VisionLayout(9, (9,), 2, 3, companion=False, typed=False)
PAD = 0


def made(tokens: list[int], images: int, copies: int = 1, *, cut: bool = False) -> Prompt:
    """A prompt with images of four patches each, whose positions count from one."""
    pictures = [Image.new("RGB", (1, 1)) for _ in range(images)]
    return Prompt(
        Row([], {"first": tokens[0]}), f"text {tokens[0]}", tokens, copies,
        {"read_s": 0.5, "images": images}, cut,
        torch.full((4 * images, 3), float(tokens[0])),
        torch.tensor([[1, 2, 2]] * images).view(-1, 3),
        torch.arange(1, len(tokens) + 1).expand(3, -1),
        pictures,
    )  # fmt: skip


def joined(layout: VisionLayout | None, *prompts: Prompt, keeps: bool = False) -> PromptBatch:
    maker = PromptMaker(SimpleNamespace(pad_token_id=PAD), 9, None, layout, keeps_pictures=keeps)
    batch = maker.join(list(prompts))
    assert isinstance(batch, PromptBatch)
    return batch


def test_copies_follow_each_other_and_are_padded_on_the_left() -> None:
    batch = joined(None, made([1, 2], 0, 2), made([3], 0))
    assert batch.tokens.tolist() == [[1, 2], [1, 2], [PAD, 3]]
    assert batch.mask.tolist() == [[1, 1], [1, 1], [0, 1]]
    assert batch.texts == ["text 1", "text 1", "text 3"]
    assert [row.columns["first"] for row in batch.rows] == [1, 1, 3]
    assert batch.images is None


def test_each_completion_has_the_images_of_its_prompt() -> None:
    prompts = (made([1, 9, 9], 2, 2), made([2], 0), made([3, 9], 1), made([4, 9], 1))
    batch = joined(LAYOUT, *prompts)
    images = batch.images
    assert images is not None
    assert images.indices == ((0, 1), (0, 1), (), (2,), (3,))
    assert images.pixel_values[:, 0].tolist() == [1.0] * 8 + [3.0] * 4 + [4.0] * 4
    assert len(images.grid_thw) == 4
    assert images.positions[:, 0].tolist() == [
        [1, 2, 3], [1, 2, 3], [0, 0, 1], [0, 1, 2], [0, 1, 2],
    ]  # fmt: skip


def test_pictures_are_kept_for_an_engine_whose_model_takes_them() -> None:
    prompts = (made([1, 9], 1, 2), made([2], 0))
    counters = {
        (keeps, layout is not None): joined(layout, *prompts, keeps=keeps)
        for keeps in (False, True)
        for layout in (None, LAYOUT)
    }
    assert [key for key, batch in counters.items() if batch.pictures is not None] == [(True, True)]
    pictures = counters[True, True].pictures
    assert pictures is not None
    assert [len(each) for each in pictures] == [1, 1, 0]


def test_prompts_that_lost_their_start_are_counted() -> None:
    prompts = (made([1], 0, copies=2, cut=True), made([2], 0), made([3], 0, cut=True))
    assert joined(None, *prompts).cut == 2


def test_the_effort_of_all_is_added_up_and_that_of_joining_is_new() -> None:
    began = time.perf_counter()
    batch = joined(LAYOUT, made([1], 1), made([2], 2))
    took = time.perf_counter() - began
    assert batch.effort["read_s"] == 1.0
    assert batch.effort["images"] == 3
    assert 0 < batch.effort["join_s"] <= took


def test_the_first_problem_is_all_that_is_sent() -> None:
    maker = PromptMaker(SimpleNamespace(pad_token_id=PAD), 9)
    assert maker.join([made([1], 0), "one", "two"]) == "one"
