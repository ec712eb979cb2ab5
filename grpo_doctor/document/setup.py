"""What was trained and how it was spread, in a few words for the top of a report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from grpo_doctor.trace.model import Run

_DIVIDED = {
    "parallel.tensor": "tensor",
    "parallel.pipeline": "pipeline",
    "parallel.context": "context",
    "parallel.expert": "expert",
}
_ENGINE_DIVIDED = {"vllm.tensor_parallel_size": "tensor", "vllm.data_parallel_size": "data"}


def model_name(run: Run) -> str:
    """The hub's name of the model, or the last part of its folder; empty where unknown."""
    name = str(run.knobs.get("model.name") or "")
    return name if name.count("/") == 1 and not name.startswith(("/", ".")) else PurePath(name).name


def parallelism(run: Run) -> str:
    """`ZeRO-3, LoRA; vLLM colocate, tensor 2`: what the settings say; empty where they don't."""
    knobs = run.knobs
    trainer = [*_sharding(knobs), *_divided(knobs, _DIVIDED)]
    if not trainer and run.world_size > 1:
        trainer = ["data parallel"] if knobs else []
    if knobs.get("train.type") == "lora" or _number(knobs.get("train.lora_rank")) > 0:
        trainer.append("LoRA")
    engine = []
    if knobs.get("vllm.use") is True:
        engine = [f"vLLM {knobs.get('vllm.mode') or ''}".strip(), *_divided(knobs, _ENGINE_DIVIDED)]
    return "; ".join(", ".join(part) for part in (trainer, engine) if part)


def _sharding(knobs: Mapping[str, Any]) -> list[str]:
    stage, preset = knobs.get("deepspeed.stage"), str(knobs.get("deepspeed.preset") or "")
    if stage is None and preset[:4] == "zero" and preset[4:5].isdigit():
        stage = preset[4]
    strategy = str(knobs.get("parallel.strategy") or "")
    sharding = [f"ZeRO-{stage}"] if stage is not None else []
    if strategy and not (sharding and strategy.lower() == "deepspeed"):
        sharding.append(strategy.upper() if strategy.startswith("fsdp") else strategy)
    return sharding


def _divided(knobs: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    sizes = {word: _number(knobs.get(name)) for name, word in names.items()}
    return [f"{word} {size}" for word, size in sizes.items() if size > 1]


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
