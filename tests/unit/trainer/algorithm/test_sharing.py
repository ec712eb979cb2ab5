"""Which models can share prompts, and what is said of the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, MistralConfig, MistralForCausalLM

from grpo_doctor_trainer.algorithm.inputs import install
from grpo_doctor_trainer.algorithm.logprobs import (
    largest_gap,
    logprobs_in_parts,
    reason_not_to_share,
)
from grpo_doctor_trainer.console import LOG
from grpo_doctor_trainer.data.prompts import PromptBatch
from grpo_doctor_trainer.flags import parse
from grpo_doctor_trainer.model.tiny import tiny_model, tiny_processor, tiny_tokenizer, tiny_vl_model
from grpo_doctor_trainer.model.vision import vision_layout
from grpo_doctor_trainer.ranks import Ranks
from grpo_doctor_trainer.rollout.transformers import TransformersRollout
from grpo_doctor_trainer.setup import with_sharing

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
    model.config._attn_implementation = "flash_attention_2"  # which takes no mask
    reason = "its attention is flash_attention_2, and only sdpa supports shared prompts"
    assert reason_not_to_share(model, CPU) == reason


def test_a_sliding_window_cannot(model: Any) -> None:
    config = MistralConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, sliding_window=2,
    )  # fmt: skip
    reason = reason_not_to_share(MistralForCausalLM(config), CPU)
    assert "sliding" in str(reason)
    model.config.layer_types = ["sliding_attention"]
    assert reason_not_to_share(model, CPU) == "it has layers of sliding_attention"


WINDOW = 3
SMALL: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "sliding_window": WINDOW,
    "pad_token_id": 0, "bos_token_id": None, "eos_token_id": 1,
}  # fmt: skip


def with_window(kind: str) -> Any:
    torch.manual_seed(0)
    if kind == "mistral":
        return MistralForCausalLM(MistralConfig(**SMALL))
    layers = ["sliding_attention", "full_attention"]
    return Gemma3ForCausalLM(Gemma3TextConfig(**SMALL, head_dim=16, layer_types=layers))


@pytest.mark.parametrize("kind", ["mistral", "gemma"])
def test_a_sliding_window_is_trained_and_sampled_as_without_sharing(
    kind: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = with_window(kind)
    engine: Any = SimpleNamespace(module=model, model=model, device=CPU, zero_stage=None)
    tokenizer = SimpleNamespace(pad_token_id=0)
    loaded: Any = SimpleNamespace(policy=model, vision=None, tokenizer=tokenizer, end_tokens=(1,))
    monkeypatch.setattr(LOG, "propagate", True)
    options = parse(["--max_completion_length", "6", "--top_k", "1"], 1)
    config = with_sharing(options, engine, loaded, Ranks(0, 1, 0, CPU, 1))
    assert (options.share_prompts, config.share_prompts) == (True, False)
    assert "--share_prompts has no effect with this model, because " in caplog.text
    assert "sliding" in caplog.text

    prompts = [[5, 9, 33, 7, 21, 60, 2], [8, 4]]  # longer than the window; padded
    width = max(map(len, prompts))
    tokens = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = (tokens != 0).long()
    rollout = TransformersRollout(engine, loaded, config)
    batch = rollout.generate(PromptBatch([], ["", ""], tokens, mask)).tokens
    actual = logprobs_in_parts(model, batch, 1.0, 2, share_prompts=config.share_prompts)
    model.eval()
    with torch.no_grad():
        for row, prompt in enumerate(prompts):  # by itself, without padding or a cache
            sequence = list(prompt)
            for column in range(int(batch.completion_mask[row].sum())):
                logprobs = model(input_ids=torch.tensor([sequence])).logits[0, -1].log_softmax(0)
                token = int(batch.completion_tokens[row, column])
                assert token == int(logprobs.argmax())
                assert actual[row, column] == pytest.approx(float(logprobs[token]), abs=1e-5)
                sequence.append(token)


def test_an_attention_that_is_not_told_the_layout_cannot(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = model.model.forward

    def forgetful(*arguments: Any, shared_prompts: Any = None, **options: Any) -> Any:
        return inner(*arguments, **options)

    monkeypatch.setattr(model.model, "forward", forgetful)
    assert "would differ by" in str(reason_not_to_share(model, CPU))


def test_without_a_layout_attention_is_what_it_was(model: Any) -> None:
    tokens = torch.tensor([[1, 2, 3]])
    before = model(input_ids=tokens).logits
    install()
    install()
    assert torch.equal(model(input_ids=tokens).logits, before)


def test_as_much_as_rounding_explains_may_differ() -> None:
    tiny = tiny_model(tiny_tokenizer())
    assert largest_gap(tiny) < 0.01 < largest_gap(tiny.bfloat16()) <= 0.1
