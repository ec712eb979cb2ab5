"""Messages are checked when they are read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from grpo_doctor_trainer.serve.protocol import (
    Event,
    Prompt,
    ProtocolError,
    Sampling,
    decode,
    encode,
)
from grpo_doctor_trainer.serve.state import model_shape


def read(**members: Any) -> Prompt:
    return decode(Prompt, msgspec.json.encode({"copies": 1, **members}))


@pytest.mark.parametrize(
    "members",
    [{"tokens": [1]}, {"text": "a", "images": ["b"]}, {"tokens": [1], "text": "a"}],
)
def test_a_prompt_is_tokens_or_text_with_images(members: dict[str, Any]) -> None:
    assert decode(Prompt, encode(read(**members))) == read(**members)


@pytest.mark.parametrize(
    "members",
    [{}, {"text": "a"}, {"images": ["b"]}, {"tokens": [1], "text": "a", "images": ["b"]}],
)
def test_neither_or_both_is_refused(members: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError, match="not a Prompt: a prompt is either tokens, or text and"):
        read(**members)


@pytest.mark.parametrize(
    ("name", "minimum", "below"),
    [
        ("max_tokens", 1, 0),
        ("temperature", 0.0, -0.1),
        ("top_p", 0.1, 0.0),
        ("top_p", 1.0, 1.1),
        ("top_k", -1, -2),
        ("repetition_penalty", 0.1, 0.0),
    ],
)
def test_sampling_is_within_its_limits(name: str, minimum: float, below: float) -> None:
    plain = {"max_tokens": 1, "temperature": 1.0, "top_p": 1.0, "top_k": -1,
             "repetition_penalty": 1.0, "stop_tokens": []}  # fmt: skip
    assert getattr(decode(Sampling, msgspec.json.encode({**plain, name: minimum})), name) == minimum
    with pytest.raises(ProtocolError, match=name):
        decode(Sampling, msgspec.json.encode({**plain, name: below}))


def test_what_is_no_text_is_refused() -> None:
    for body in (b"\xff", b"", b"{"):
        with pytest.raises(ProtocolError, match="not a Event"):
            decode(Event, body)
    assert encode(Event()) == b"{}"


def test_of_a_models_config_the_language_part_counts() -> None:
    class Text:
        vocab_size, hidden_size = 300, 64

    class Whole:
        vocab_size, num_hidden_layers = 1, 2

        def get_text_config(self) -> Text:
            return Text()

    assert model_shape(Whole()) == {"vocab_size": 300, "hidden_size": 64}
