"""Prompts of a rollout joined: padding, images, and what is said of them."""

from __future__ import annotations

import time

import torch
from PIL import Image

from grpo_doctor_trainer.data.batch import Collator, Failure, Fetched, Made, PromptBatch
from grpo_doctor_trainer.data.making import Effort, Prompt, Vision
from grpo_doctor_trainer.data.rows import Row
from grpo_doctor_trainer.model.vision import VisionLayout

LAYOUT = VisionLayout(9, (9,), 2, 3, companion=False, typed=False)
PAD = 0


def made(tokens: list[int], images: int, copies: int = 1, cut: int = 0) -> Made:
    """A prompt with images of four patches each, whose positions count from one."""
    pictures = [Image.new("RGB", (1, 1)) for _ in range(images)]
    vision = Vision(
        torch.full((4 * images, 3), float(tokens[0])),
        torch.tensor([[1, 2, 2]] * images).view(-1, 3),
        torch.arange(1, len(tokens) + 1).expand(3, -1),
        pictures,
    )
    effort = Effort(read_s=0.5, images=images)
    row = Row([], {"first": tokens[0]})
    return Made(Prompt(row, f"text {tokens[0]}", tokens, copies, cut, vision, effort), ())


def joined(collator: Collator, *prompts: Made) -> tuple[Fetched, PromptBatch]:
    fetched = collator(list(prompts))
    assert fetched.batch is not None
    return fetched, fetched.batch


def test_copies_follow_each_other_and_are_padded_on_the_left() -> None:
    _, batch = joined(Collator(PAD, None, keeps_pictures=False), made([1, 2], 0, 2), made([3], 0))
    assert batch.tokens.tolist() == [[1, 2], [1, 2], [PAD, 3]]
    assert batch.mask.tolist() == [[1, 1], [1, 1], [0, 1]]
    assert batch.texts == ["text 1", "text 1", "text 3"]
    assert [row.columns["first"] for row in batch.rows] == [1, 1, 3]
    assert batch.images is None


def test_each_completion_has_the_images_of_its_prompt() -> None:
    prompts = (made([1, 9, 9], 2, 2), made([2], 0), made([3, 9], 1), made([4, 9], 1))
    _, batch = joined(Collator(PAD, LAYOUT, keeps_pictures=False), *prompts)
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
        (keeps, layout is not None): joined(Collator(PAD, layout, keeps_pictures=keeps), *prompts)[
            1
        ]
        for keeps in (False, True)
        for layout in (None, LAYOUT)
    }
    assert [key for key, batch in counters.items() if batch.pictures is not None] == [(True, True)]
    pictures = counters[True, True].pictures
    assert pictures is not None
    assert [len(each) for each in pictures] == [1, 1, 0]


def test_prompts_that_lost_their_start_are_counted() -> None:
    prompts = (made([1], 0, copies=2, cut=3), made([2], 0), made([3], 0, cut=1))
    fetched, _ = joined(Collator(PAD, None, keeps_pictures=False), *prompts)
    assert (fetched.cut, fetched.problem) == (2, None)


def test_the_effort_of_all_is_added_up_and_that_of_joining_is_new() -> None:
    began = time.perf_counter()
    fetched, _ = joined(Collator(PAD, LAYOUT, keeps_pictures=False), made([1], 1), made([2], 2))
    took = time.perf_counter() - began
    assert fetched.effort["read_s"] == 1.0
    assert fetched.effort["images"] == 3
    assert 0 < fetched.effort["join_s"] <= took


def test_the_first_problem_is_all_that_is_sent_with_the_images_that_were_skipped() -> None:
    good = Made(made([1], 0, cut=1).prompt, ("a.png", "b.png"))
    fetched = Collator(PAD, None, keeps_pictures=False)([good, Failure("one"), Failure("two")])
    assert fetched == Fetched(None, "one", ("a.png", "b.png"), 0)
