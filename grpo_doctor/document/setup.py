"""What was trained and how it was spread, in a few words for the top of a report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from grpo_doctor.knobs.provenance import Provenance
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
    name = str(run.facts.get("model.name") or "")
    return name if name.count("/") == 1 and not name.startswith(("/", ".")) else PurePath(name).name


def parallelism(run: Run) -> str:
    """`ZeRO-3, LoRA; vLLM colocate, tensor 2`: what the settings say; empty where they don't."""
    facts = run.facts
    trainer = [*_sharding(facts), *_divided(facts, _DIVIDED)]
    if not trainer and run.world_size > 1:
        says_all = run.settings.provenance is Provenance.READ
        trainer = ["data parallel"] if run.knobs and says_all else []
    if trains_adapters(run):
        trainer.append("LoRA")
    engine = []
    if facts.get("vllm.use") is True:
        engine = [f"vLLM {facts.get('vllm.mode') or ''}".strip(), *_divided(facts, _ENGINE_DIVIDED)]
    return "; ".join(", ".join(part) for part in (trainer, engine) if part)


def trains_adapters(run: Run) -> bool:
    """Whether it is known that LoRA adapters were trained: it was said, or a rank was said where
    nothing else, such as a default, chooses to train all weights."""
    kind = run.setting("train.type")
    if kind.provenance.is_fact:
        return bool(kind.value == "lora")
    return kind.value != "full" and _number(run.facts.get("train.lora_rank")) > 0


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
