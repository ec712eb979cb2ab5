"""Whose log-probs a forward pass gives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grpo_doctor_probes.hooks import grpo_trainers
from grpo_doctor_probes.hooks.grpo_trainers import LOSS, OLD, REFERENCE, logprob_span
from grpo_doctor_probes.hooks.spans import HookedSpan
from tests.unit.probes.conftest import Recorded


class Layer:
    """As peft's: the class has the mark, False, and an object that is switched off has its own."""

    _disable_adapters = False

    def __init__(self, active: str = "default", off: bool | None = None) -> None:
        self.active_adapters = [active]
        if off is not None:
            self._disable_adapters = off


class Model:
    def __init__(self, *layers: Layer) -> None:
        self.parts, self.walked = [object(), *layers], 0

    def modules(self) -> list[object]:
        self.walked += 1
        return self.parts


@pytest.fixture(autouse=True)
def _forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpo_trainers, "_LAYERS", {})


OWN = Model(Layer())


@pytest.mark.parametrize(
    ("trainer", "model", "reference"),
    [
        ({}, Model(), False),
        ({}, object(), False),
        ({"ref_model": OWN}, OWN, True),
        ({"ref_model": Model()}, OWN, False),
        ({}, Model(Layer(off=True)), True),
        ({}, Model(Layer(off=False)), False),
        ({}, Model(Layer(), Layer(off=True)), False),  # the first layer tells
        ({"ref_adapter_name": "reference"}, Model(Layer("reference")), True),
        ({"ref_adapter_name": "reference"}, Model(Layer("default")), False),
        ({"ref_adapter_name": "reference"}, Model(Layer("default", off=True)), True),
        ({"ref_adapter_name": None}, Model(Layer("default")), False),
        ({"ref_adapter_name": "reference"}, Model(), False),
    ],
)
def test_the_reference_is_another_model_or_the_same_without_its_adapter(
    recording: Recorded, trainer: dict[str, Any], model: Any, reference: bool
) -> None:
    instance = SimpleNamespace(**trainer)
    assert logprob_span(instance, model, 1, key=2) == (REFERENCE if reference else OLD)
    with HookedSpan(LOSS):  # the policy's own pass is part of it
        assert logprob_span(instance, model) == (REFERENCE if reference else None)


def test_a_model_is_walked_through_once() -> None:
    for model in (Model(Layer()), Model()):
        for _ in range(3):
            logprob_span(SimpleNamespace(), model)
        assert model.walked == 1
