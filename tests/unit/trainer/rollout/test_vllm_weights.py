"""The weights that a colocated engine is sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import peft
import pytest
import torch

from grpo_doctor_trainer.model.tiny import tiny_model, tiny_tokenizer
from grpo_doctor_trainer.rollout.vllm.weights import policy_weights


def adapted() -> Any:
    torch.manual_seed(1)
    adapters = peft.LoraConfig(
        r=8, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    policy = peft.get_peft_model(tiny_model(tiny_tokenizer()), adapters)
    for name, weight in policy.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    return policy


def engine_of(module: Any) -> Any:
    return SimpleNamespace(module=module, zero_stage=None)


def in_parts(parts: int | None = None) -> Any:
    return SimpleNamespace(move_model_batches=parts)


def sent_by(model: Any) -> dict[str, Any]:
    parts = policy_weights(engine_of(model), in_parts())
    return {name: tensor for part in parts for name, tensor in part}


@pytest.mark.parametrize("parts", [None, 1, 3, 1000])
def test_weights_come_under_their_own_names_in_parts(parts: int | None) -> None:
    model = tiny_model(tiny_tokenizer())
    parts_sent = list(policy_weights(engine_of(model), in_parts(parts)))
    assert 1 <= len(parts_sent) <= (parts or 1)
    if parts == 3:
        assert len(parts_sent) == 3
    assert {name for part in parts_sent for name, _ in part} == set(model.state_dict())


@pytest.mark.slow
def test_merged_weights_give_what_adapters_give_and_leave_the_policy_alone() -> None:
    policy = adapted()
    before = {name: weight.detach().clone() for name, weight in policy.named_parameters()}
    merged = tiny_model(tiny_tokenizer())
    merged.load_state_dict(sent_by(policy))
    tokens = torch.arange(40).view(2, 20)
    with torch.no_grad():
        torch.testing.assert_close(merged(tokens).logits, policy(tokens).logits)
        plain = tiny_model(tiny_tokenizer())(tokens).logits
    assert not torch.allclose(plain, policy(tokens).logits, atol=1e-2)
    assert all(weight.equal(before[name]) for name, weight in policy.named_parameters())


def test_merged_weights_are_those_of_pefts_own_merge() -> None:
    policy = adapted()
    mine = sent_by(policy)
    theirs = policy.merge_and_unload().state_dict()
    assert mine.keys() == theirs.keys()
    assert all(mine[name].equal(theirs[name]) for name in mine)


def test_a_tied_head_comes_under_both_names() -> None:
    from transformers import Qwen2ForCausalLM

    settings = tiny_model(tiny_tokenizer()).config
    settings.tie_word_embeddings = True
    sent = sent_by(Qwen2ForCausalLM(settings))
    assert sent["lm_head.weight"].equal(sent["model.embed_tokens.weight"])
