"""What a framework's own objects say of a run."""

from __future__ import annotations

from types import SimpleNamespace as Space
from typing import Any

import pytest

from grpo_doctor_probes.hooks import describing
from grpo_doctor_probes.hooks.describing import (
    framework_of,
    model_facts,
    package_versions,
    plain_settings,
    settings_of,
)
from tests.unit.probes.record.test_modelsizes import QWEN, SIZES, Weight


@pytest.fixture(autouse=True)
def parsed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a launcher has parsed: nothing yet."""
    nothing: dict[str, Any] = {}
    monkeypatch.setattr(describing, "PARSED", nothing)
    return nothing


class Arguments:
    def __init__(self, device: Any = None, **settings: Any) -> None:
        self._settings = settings
        if device is not None:
            self.device = device

    def to_dict(self) -> dict[str, Any]:
        return self._settings


def model(**facts: Any) -> Space:
    weights = [Weight(10, trained=False), Weight(6, trained=True)]
    return Space(**{"config": QWEN, "parameters": lambda: iter(weights), **facts})


def tuned(peft_config: dict[str, Any]) -> Space:
    return model(config=Space(), peft_config=peft_config)


COUNTS = {"model_parameters": 16, "model_trained_parameters": 6}


@pytest.mark.parametrize(
    ("trained_model", "facts"),
    [
        (None, {}),
        (Space(), {}),
        (model(), {**SIZES, **COUNTS}),
        (model(config=Space(_name_or_path="a/8B")), {"model_name_or_path": "a/8B", **COUNTS}),
        (model(config=Space(_name_or_path="")), COUNTS),
        (tuned({"default": Space(r=16)}), {"use_peft": True, "lora_r": 16, **COUNTS}),
        (tuned({"default": Space()}), {"use_peft": True, "lora_r": None, **COUNTS}),
        (tuned({}), COUNTS),
    ],
)
def test_facts_of_a_model(trained_model: Any, facts: dict[str, Any]) -> None:
    assert model_facts(trained_model) == facts


def accelerated(stage: int | None) -> Any:
    return Space(state=Space(deepspeed_plugin=Space(zero_stage=stage)))


@pytest.mark.parametrize(
    ("trainer", "settings"),
    [
        ({}, {"lr": 1}),
        ({"accelerator": accelerated(0)}, {"lr": 1, "zero_stage": 0}),
        ({"accelerator": accelerated(None)}, {"lr": 1}),
        ({"accelerator": Space()}, {"lr": 1}),
        ({"args": Arguments(Space(type="cuda"), lr=1)}, {"lr": 1, "device": "cuda"}),
        ({"args": Arguments(Space(), lr=1)}, {"lr": 1}),
        ({"model": model(config=Space())}, {"lr": 1, **COUNTS}),
    ],
)
def test_settings_are_the_arguments_and_what_else_is_known(
    trainer: dict[str, Any], settings: dict[str, Any]
) -> None:
    assert settings_of(Space(**{"args": Arguments(lr=1), **trainer})) == settings


@pytest.mark.parametrize(
    ("modules", "framework"),
    [
        (["transformers.trainer"], "transformers"),
        (["transformers.trainer", "trl.trainer.grpo_trainer"], "trl"),
        (["transformers.trainer", "trl.trainer.grpo_trainer", "swift.rlhf_trainers"], "ms-swift"),
        (["transformers.trainer", "swiftly.trainer"], "transformers"),
        (["transformers.trainer", "mine"], "transformers"),
    ],
)
def test_a_framework_is_known_by_the_classes_that_a_trainer_is_made_of(
    modules: list[str], framework: str
) -> None:
    kind: type = object
    for module in modules:
        kind = type("Trainer", (kind,), {"__module__": module})
    assert framework_of(kind()) == framework


class dtype:  # noqa: N801 - torch's
    def __str__(self) -> str:
        return "torch.bfloat16"


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, True), (True, True), (3, True), (0.5, True), ("lora", True), ([], True),
        ([1, "a", [None]], True), ((1, 2), True), ({"a": [1]}, True), ({1: None}, True), ({}, True),
        (object(), False), ([1, object()], False), ((object(), 1), False),
        ({"a": object()}, False), ({(object(),): 1}, False),
    ],
)  # fmt: skip
def test_settings_are_plain_values(value: object, plain: bool) -> None:
    arguments = Space(given=value, _hidden=1, torch_dtype=dtype())
    settings = plain_settings(arguments)
    assert settings == ({"given": value} if plain else {}) | {"torch_dtype": "bfloat16"}


def test_versions_are_those_of_what_is_installed() -> None:
    versions = package_versions()
    assert "ms-swift" not in versions
    assert all(version and version[0].isdigit() for version in versions.values())
