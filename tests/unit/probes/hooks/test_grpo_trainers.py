"""Whose log-probs a forward pass of a GRPO trainer gives, and the size of each pass."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from grpo_doctor_probes.hooks import grpo_trainers
from grpo_doctor_probes.hooks.grpo_trainers import (
    LOSS,
    OLD,
    PLACES,
    REFERENCE,
    logprob_span,
    of_trainer,
)
from grpo_doctor_probes.hooks.spans import HookedSpan
from grpo_doctor_probes.hooks.wrapping import replace
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


class Tensor:
    def __init__(self, places: int) -> None:
        self.places = places

    def numel(self) -> int:
        return self.places


def trainer() -> Any:
    """A trainer in TRL's shape."""

    class GRPOTrainer:
        def compute_loss(self, model: Any, inputs: Any) -> Any:
            return inputs

    module = ModuleType("trl.trainer.grpo_trainer")
    vars(module)["GRPOTrainer"] = GRPOTrainer
    for qualname, around in of_trainer().items():
        assert replace(module, qualname, around)
    return GRPOTrainer()


SPLIT = {"prompt_ids": Tensor(12), "completion_ids": Tensor(30)}
WHOLE = {"input_ids": Tensor(50)}


@pytest.mark.parametrize(
    ("inputs", "places"),
    [
        (SPLIT, 42.0),
        (WHOLE, 50.0),
        ({**SPLIT, **WHOLE}, 50.0),
        ({"prompt_ids": Tensor(12)}, 12.0),
        ({"model_inputs": WHOLE, **SPLIT}, 50.0),
        ([WHOLE, SPLIT], 50.0),
        ([(SPLIT,)], 42.0),
        ([], None),
        ({}, None),
        ({"input_ids": Tensor(0)}, None),
    ],
)
@pytest.mark.parametrize("by_name", [True, False])
def test_a_pass_has_the_places_of_its_tensors(
    recording: Recorded, inputs: Any, places: float | None, by_name: bool
) -> None:
    made = trainer()
    returned = (
        made.compute_loss(None, inputs=inputs) if by_name else made.compute_loss(None, inputs)
    )
    assert returned is inputs
    counted = [(row.name, row.value) for row in recording.rows]
    assert counted == ([] if places is None else [(PLACES, places)])
    assert recording.header.errors == 0


def test_passes_of_an_evaluation_are_not_counted(recording: Recorded) -> None:
    made = trainer()
    with HookedSpan("eval"):
        made.compute_loss(None, WHOLE)
    assert recording.names == ["eval"]


def test_inputs_of_a_shape_from_tomorrow_are_passed_on(recording: Recorded) -> None:
    inputs = SimpleNamespace()
    assert trainer().compute_loss(None, inputs) is inputs
    assert recording.header.errors == 1
