"""The embedded model and its tokenizer."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from grpo_doctor_trainer.model.tiny import tiny_model, tiny_tokenizer

TOKENIZER = tiny_tokenizer()


@given(st.text(max_size=30))
def test_any_text_survives_and_has_one_token_per_byte(text: str) -> None:
    tokens = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    assert TOKENIZER.decode(tokens) == text
    assert len(tokens) <= len(text.encode())


def test_chat_template_marks_roles_ends_and_the_answer() -> None:
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "1+2"}]
    text = TOKENIZER.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "<|system|>S<|end|><|user|>1+2<|end|><|assistant|>"
    plain = TOKENIZER.apply_chat_template(messages, tokenize=False)
    assert plain == "<|system|>S<|end|><|user|>1+2<|end|>"
    tokens = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    assert len(tokens) == 5 + 1 + 3
    assert TOKENIZER.decode(tokens, skip_special_tokens=True) == "S1+2"


def test_padding_and_end_are_different_tokens_and_padding_is_on_the_left() -> None:
    assert TOKENIZER.pad_token_id != TOKENIZER.eos_token_id
    padded = TOKENIZER(["1", "123"], padding=True, add_special_tokens=False)
    assert padded["input_ids"][0][:2] == [TOKENIZER.pad_token_id] * 2
    assert padded["attention_mask"][0] == [0, 0, 1]


def test_weights_are_the_same_each_time_and_random_state_is_untouched() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    first = tiny_model(TOKENIZER).state_dict()
    assert torch.rand(3).equal(expected)
    torch.manual_seed(2)
    second = tiny_model(TOKENIZER).state_dict()
    assert first.keys() == second.keys()
    assert all(first[name].equal(second[name]) for name in first)


def test_a_wider_model_has_more_to_move_and_still_computes() -> None:
    usual, wider = (tiny_model(TOKENIZER, width) for width in (128, 256))
    counts = [sum(weight.numel() for weight in model.parameters()) for model in (usual, wider)]
    assert counts[1] > 2 * counts[0]
    assert wider(torch.tensor([[1, 2, 3]])).logits.shape == (1, 3, len(TOKENIZER))
