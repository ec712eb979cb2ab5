"""How the weights get into the vLLM inside a rank."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from grpo_doctor_trainer.model.tiny import tiny_model, tiny_tokenizer
from grpo_doctor_trainer.rollout.vllm.colocate import load_in_parts, reload_at_once


class Engine:
    """A `LLMEngine` around a model that takes over weights under their own names."""

    def __init__(self) -> None:
        self.model = tiny_model(tiny_tokenizer())
        with torch.no_grad():
            for weight in self.model.parameters():
                weight.zero_()
        self.model.load_weights = self._load  # the model's own method, as vLLM's have it
        self.calls: list[str] = []

    def apply_model(self, function: Callable[[Any], Any]) -> list[Any]:
        return [function(self.model)]

    def collective_rpc(self, method: str, *, kwargs: dict[str, Any]) -> None:
        self.calls.append(method)
        self.model.load_weights(kwargs["weights_iterator"])

    def _load(self, weights: Any) -> set[str]:
        parameters, loaded = dict(self.model.named_parameters()), set()
        with torch.no_grad():
            for name, tensor in weights:
                if name in parameters:
                    parameters[name].copy_(tensor)
                    loaded.add(name)
        return loaded


@pytest.mark.parametrize("repacks", [False, True])
def test_the_engine_has_the_policys_weights_after_a_sync(repacks: bool) -> None:
    policy, vllm = tiny_model(tiny_tokenizer()), Engine()
    engine: Any = SimpleNamespace(module=policy, zero_stage=None)
    options: Any = SimpleNamespace(train_type="full", move_model_batches=3)
    (reload_at_once if repacks else load_in_parts)(vllm, engine, options)
    parameters = dict(vllm.model.named_parameters())
    assert all(weight.equal(parameters[name]) for name, weight in policy.named_parameters())
    assert vllm.calls == (["reload_weights"] if repacks else [])
