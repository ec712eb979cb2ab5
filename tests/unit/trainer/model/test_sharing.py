"""Which models can share prompts, and what is said of the others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

from grpo_doctor_trainer.algorithm.shared_attention import install
from grpo_doctor_trainer.model.sharing import reason_not_to_share
from grpo_doctor_trainer.model.tiny import tiny_model, tiny_tokenizer
from grpo_doctor_trainer.model.tiny_vl import tiny_processor, tiny_vl_model
from grpo_doctor_trainer.model.vision import vision_layout

CPU = torch.device("cpu")


@pytest.fixture
def model() -> Any:
    return tiny_model(tiny_tokenizer()).train()


def test_the_embedded_models_can_and_are_left_as_they_were(model: Any) -> None:
    state = torch.random.get_rng_state()
    assert reason_not_to_share(model, CPU) is None
    assert model.training
    assert torch.equal(state, torch.random.get_rng_state())
    with_images = tiny_vl_model(tiny_processor().tokenizer)
    for companion in (False, True):
        layout = vision_layout(with_images, companion=companion)
        assert reason_not_to_share(with_images, CPU, layout) is None


def test_another_attention_cannot(model: Any) -> None:
    model.set_attn_implementation("eager")
    assert "its attention is eager" in str(reason_not_to_share(model, CPU))


def test_a_sliding_window_cannot(model: Any) -> None:
    config = MistralConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, sliding_window=2,
    )  # fmt: skip
    reason = reason_not_to_share(MistralForCausalLM(config), CPU)
    assert "sliding" in str(reason)
    model.config.layer_types = ["sliding_attention"]
    assert reason_not_to_share(model, CPU) == "it has layers of sliding_attention"


def test_an_attention_that_is_not_told_the_layout_cannot(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = model.model.forward

    def forgetful(*given: Any, shared_prompts: Any = None, **options: Any) -> Any:
        return inner(*given, **options)

    monkeypatch.setattr(model.model, "forward", forgetful)
    assert "would differ by" in str(reason_not_to_share(model, CPU))


def test_without_a_layout_attention_is_what_it_was(model: Any) -> None:
    tokens = torch.tensor([[1, 2, 3]])
    before = model(input_ids=tokens).logits
    install()
    install()
    assert torch.equal(model(input_ids=tokens).logits, before)
