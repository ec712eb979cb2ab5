"""What a framework's own objects say of the run: its settings and the versions of its packages."""

from __future__ import annotations

from grpo_doctor_probes import describe
from grpo_doctor_probes.hooks.coverage import version_of

TYPE_CHECKING = False  # `typing` costs 7 ms of import in the job
if TYPE_CHECKING:
    from typing import Any

_PACKAGES = (
    "torch", "transformers", "accelerate", "peft", "trl", "ms-swift", "deepspeed", "vllm",
    "datasets",
)  # fmt: skip


def describe_trainer(trainer: Any) -> None:
    """Writes what a transformers Trainer, or one that subclasses it, knows of its run."""
    if not trainer.is_world_process_zero():
        return
    framework = framework_of(trainer)
    describe(framework, version_of(framework), settings_of(trainer), package_versions())


def framework_of(trainer: Any) -> str:
    """`ms-swift`, `trl` or `transformers`, judged by the classes that the trainer's is made of."""
    packages = {cls.__module__.partition(".")[0] for cls in type(trainer).__mro__}
    if "swift" in packages:
        return "ms-swift"
    return "trl" if "trl" in packages else "transformers"


def settings_of(trainer: Any) -> dict[str, Any]:
    """The trainer's arguments under their own names, and what the model and DeepSpeed say."""
    settings = dict(trainer.args.to_dict())
    model = getattr(trainer, "model", None)
    name = getattr(getattr(model, "config", None), "_name_or_path", None)
    if name:
        settings.setdefault("model_name_or_path", str(name))
    adapters = getattr(model, "peft_config", None)
    if adapters:
        settings.setdefault("use_peft", True)
        first = next(iter(adapters.values()))
        settings.setdefault("lora_r", getattr(first, "r", None))
    plugin = getattr(trainer.accelerator.state, "deepspeed_plugin", None)
    stage = getattr(plugin, "zero_stage", None)
    if stage is not None:
        settings.setdefault("zero_stage", stage)
    return settings


def package_versions() -> dict[str, str]:
    """The versions of the packages that a training run is usually made of, as far as installed."""
    versions = {name: version_of(name) for name in _PACKAGES}
    return {name: version for name, version in versions.items() if version is not None}
