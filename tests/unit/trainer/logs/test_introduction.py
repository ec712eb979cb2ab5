"""What a run says of its model to the recorder."""

from __future__ import annotations

from types import SimpleNamespace

from grpo_doctor_trainer.logs.introduction import model_sizes

QWEN = SimpleNamespace(
    vocab_size=151_936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24
)
SIZES = {
    "model_vocab_size": 151_936,
    "model_hidden_size": 896,
    "model_intermediate_size": 4864,
    "model_num_hidden_layers": 24,
}


def test_sizes_are_those_of_the_language_model() -> None:
    assert model_sizes(QWEN) == SIZES
    assert model_sizes(SimpleNamespace(text_config=QWEN, hidden_size=1)) == SIZES


def test_sizes_that_a_model_does_not_say_are_left_out() -> None:
    assert model_sizes(SimpleNamespace(hidden_size=64, vocab_size=None)) == {
        "model_hidden_size": 64
    }
