"""What a colocated engine is asked, and what its answers become."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.rollout import seeded
from grpo_doctor_trainer.rollout.vllm import requests
from tests.unit.trainer.rollout.colocated import CPU, config


def prompts(*lines: list[int]) -> Any:
    from grpo_doctor_trainer.data.prompts import PromptBatch

    longest = max(map(len, lines))
    tokens = torch.tensor([[0] * (longest - len(line)) + line for line in lines])
    mask = torch.tensor([[0] * (longest - len(line)) + [1] * len(line) for line in lines])
    return PromptBatch([], [f"text {line}" for line in lines], tokens, mask)


def test_requests_are_the_prompts_without_padding() -> None:
    assert requests.as_requests(prompts([5, 6, 7], [8])) == [
        {"prompt_token_ids": [5, 6, 7]},
        {"prompt_token_ids": [8]},
    ]


def test_a_prompt_with_pictures_goes_as_text() -> None:
    import dataclasses

    picture: Any = object()
    batch = dataclasses.replace(prompts([5], [6]), pictures=[[picture], []])
    assert requests.as_requests(batch) == [
        {"prompt": "text [5]", "multi_modal_data": {"image": [picture]}},
        {"prompt_token_ids": [6]},
    ]


def test_a_prompt_that_leaves_no_room_is_refused_before_generation() -> None:
    batch = prompts([1] * 30)
    requests.check_length(batch, config(), 38)
    with pytest.raises(RolloutError, match=r"30 tokens .* raise that to 38 .* --max_length to 29"):
        requests.check_length(batch, config(), 37)


def test_sampling_is_the_trainers() -> None:
    loaded: Any = SimpleNamespace(end_tokens=(3, 4), vision=None)
    flags = ("--top_p", "0.9", "--temperature", "0.7", "--repetition_penalty", "1.1")
    options = requests.sampling_options(config(*flags), loaded)
    assert (options["top_k"], options["top_p"], options["temperature"]) == (0, 0.9, 0.7)
    assert options["repetition_penalty"] == 1.1
    assert (options["stop_token_ids"], options["max_tokens"]) == ([3, 4], 8)
    assert options["logit_bias"] is None
    assert requests.sampling_options(config("--top_k", "5"), loaded)["top_k"] == 5
    loaded.vision = SimpleNamespace(placeholders=[9])
    with_images = requests.sampling_options(config(), loaded)
    assert with_images["logit_bias"] == {9: -100.0}


def output(tokens: list[int], reason: str = "stop") -> Any:
    made = SimpleNamespace(
        token_ids=tokens,
        finish_reason=reason,
        logprobs=[{token: SimpleNamespace(logprob=-float(token))} for token in tokens],
    )
    return SimpleNamespace(outputs=[made], prompt_token_ids=[1, 2])


def test_outputs_stand_behind_their_prompts_padded_on_the_right() -> None:
    sampled = [requests.read_output(output(tokens)) for tokens in ([7, 8, 3], [3])]
    made = requests.as_completions(prompts([1, 2], [9]), sampled, 0, CPU)
    assert made.tokens.completion_tokens.tolist() == [[7, 8, 3], [3, 0, 0]]
    assert made.tokens.completion_mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert made.tokens.prompt_tokens.tolist() == [[1, 2], [0, 9]]
    assert made.logprobs is not None
    assert made.logprobs.tolist() == [[-7, -8, -3], [-3, 0, 0]]


def test_a_request_that_the_engine_gave_up_is_an_error() -> None:
    with pytest.raises(RolloutError, match="gave up a completion after 1 tokens"):
        requests.read_output(output([7], "abort"))


def test_prompts_that_the_engine_reads_in_another_way_are_an_error() -> None:
    sampled = [requests.read_output(output([7]))]
    requests.check_read(prompts([1, 2]), sampled)
    with pytest.raises(RolloutError, match="as 2 tokens and the trainer as 3"):
        requests.check_read(prompts([1, 2, 3]), sampled)


def test_a_seed_repeats_and_leaves_the_generators_as_they_were() -> None:
    import random

    import numpy as np

    def draw() -> list[float]:
        return [float(torch.rand(())), random.random(), np.random.rand()]

    torch.manual_seed(3)
    state = torch.random.get_rng_state()
    with seeded(11, CPU):
        first = draw()
    assert torch.random.get_rng_state().equal(state)
    with seeded(11, CPU):
        assert draw() == first
    with seeded(12, CPU):
        assert draw() != first
