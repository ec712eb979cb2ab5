"""Micro-batches of a rollout: shuffled, or with the completions of a prompt together."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from grpo_doctor_trainer.data.experience import Experience, Feed, TokenBatch

PROMPTS = (1, 3, 2, 1)
COMPLETIONS = (2, 6, 1, 5)


def feed_of(size: int) -> Feed:
    prompt_mask = torch.tensor([[0] * (3 - n) + [1] * n for n in PROMPTS])
    mask = torch.tensor([[1] * n + [0] * (6 - n) for n in COMPLETIONS])
    rows = torch.arange(4).view(4, 1)
    tokens = TokenBatch(prompt_mask * (rows + 1), prompt_mask, mask * (rows + 1), mask)
    experience = Experience(tokens, torch.arange(4.0), (mask * rows).float(), None)
    return Feed(experience, torch.tensor([2, 0, 3, 1]), size)


def test_shuffled_micro_batches_keep_their_order_and_width() -> None:
    feed = feed_of(2)
    first, second = feed.take(2)
    assert first.advantages.tolist() == [2, 0]
    assert second.advantages.tolist() == [3, 1]
    assert first.tokens.completion_tokens.shape == (2, 6)
    assert first.tokens.places == 2 * (3 + 6)
    assert feed.empty


def shared_prompts(size: int) -> Feed:
    """Of the prompts 0, 1, 0, 1 in the order 2, 1, 0, 3."""
    feed = feed_of(size)
    tokens = feed.experience.tokens
    rows = [0, 1, 0, 1]
    shared = dataclasses.replace(
        tokens, prompt_tokens=tokens.prompt_tokens[rows], prompt_mask=tokens.prompt_mask[rows]
    )
    feed.experience = dataclasses.replace(feed.experience, tokens=shared)
    feed.order = torch.tensor([2, 1, 0, 3])
    return feed


@pytest.mark.parametrize(
    ("size", "count", "by_prompt", "expected"),
    [
        (2, 2, True, [[2, 0], [1, 3]]),
        (2, 2, False, [[2, 1], [0, 3]]),
        (4, 1, True, [[2, 1, 0, 3]]),  # one micro-batch has them together anyway
        (4, 1, False, [[2, 1, 0, 3]]),
    ],
)
def test_prompts_are_put_together_where_a_step_has_several_micro_batches(
    size: int, count: int, by_prompt: bool, expected: list[list[int]]
) -> None:
    parts = shared_prompts(size).take(count, by_prompt=by_prompt)
    assert [part.advantages.tolist() for part in parts] == expected


def test_each_iteration_takes_every_completion_once() -> None:
    feed = Feed.shuffled(feed_of(1).experience, size=3, iterations=2)
    assert not feed.empty
    assert sorted(feed.order[:4].tolist()) == sorted(feed.order[4:].tolist()) == [0, 1, 2, 3]
