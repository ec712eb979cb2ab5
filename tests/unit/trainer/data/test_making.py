"""Prompts with images: tokens for each, what they took, and what cannot be made."""

from __future__ import annotations

import dataclasses
import re
import time

import pytest
import torch

from grpo_doctor_trainer.data.prompts import PromptMaker
from grpo_doctor_trainer.data.rows import Row, load_rows
from grpo_doctor_trainer.errors import DatasetError
from grpo_doctor_trainer.flags import parse
from grpo_doctor_trainer.model.load import load_model

PICTURE, *_, SUM = load_rows([], with_images=True)


@pytest.fixture(scope="module")
def maker() -> PromptMaker:
    config = parse(["--model", "embedded-vl"], 1)
    return PromptMaker.of(load_model(config, torch.float32), config)


def test_what_a_prompt_with_an_image_took(maker: PromptMaker) -> None:
    began = time.perf_counter()
    prompt = maker.make(PICTURE, 2)
    took = time.perf_counter() - began
    effort = prompt.effort
    seconds = [effort[name] for name in ("read_s", "process_s", "tokenize_s")]
    assert min(seconds) > 0
    assert sum(seconds) <= took
    assert (effort["images"], effort["decoded_pixels"], effort["pixels"]) == (1, 56 * 56, 56 * 56)
    assert effort["image_tokens"] == 4
    assert (prompt.cut, prompt.copies) == (False, 2)


def test_an_image_that_is_scaled_down_is_counted_as_it_was_and_as_it_is(
    maker: PromptMaker,
) -> None:
    effort = dataclasses.replace(maker, max_pixels=28 * 28).make(PICTURE, 1).effort
    sizes = [effort[name] for name in ("decoded_pixels", "pixels", "image_tokens")]
    assert sizes == [56 * 56, 28 * 28, 1]


def test_a_prompt_with_images_that_just_fits_is_whole_and_a_longer_one_is_refused(
    maker: PromptMaker,
) -> None:
    uncut = maker.make(PICTURE, 1)
    size = len(uncut.tokens)
    assert dataclasses.replace(maker, limit=size).make(PICTURE, 1).tokens == uncut.tokens
    text = f"the prompt has {size} tokens, 4 of them for its 1 images, and {size - 1} at most fit"
    with pytest.raises(DatasetError, match=text):
        dataclasses.replace(maker, limit=size - 1).make(PICTURE, 1)


def test_places_that_are_written_as_the_models_own_tokens_are_refused(maker: PromptMaker) -> None:
    text = Row([{"role": "user", "content": "<|image_pad|>"}], location="line 3")
    message = "line 3: the prompt has 1 places for 0 images"
    with pytest.raises(DatasetError, match=re.escape(message)):
        maker.make(text, 1)
    content = [{"type": "image"}, {"type": "text", "text": "<|image_pad|>"}]
    more = dataclasses.replace(PICTURE, messages=[{"role": "user", "content": content}])
    with pytest.raises(DatasetError, match="the prompt has 2 places for 1 images"):
        maker.make(more, 1)


def test_without_a_chat_template_an_image_stands_where_its_part_is(maker: PromptMaker) -> None:
    tokenizer, template = maker.tokenizer, maker.tokenizer.chat_template
    content = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    row = dataclasses.replace(PICTURE, messages=[{"role": "user", "content": content}])
    try:
        tokenizer.chat_template = None
        prompt = maker.make(row, 1)
    finally:
        tokenizer.chat_template = template
    assert prompt.text == "a<|image_pad|>b"
    assert len(prompt.tokens) == 1 + 4 + 1
