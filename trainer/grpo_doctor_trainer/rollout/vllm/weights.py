"""The policy's weights as a checkpoint of its base model would have them, for the engine.

Adapters are merged into copies. PEFT's own merge changes the base weights in place, and taking the
product off again leaves them a rounding error away from where they were: training with a rollout
engine would then differ from training without one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.engine import Engine
from grpo_doctor_trainer.model.load import base_model

_ADAPTER_MARK = "lora_"


@dataclass(frozen=True)
class _Weight:
    """One tensor of the base model, and the LoRA layer around it, if any."""

    name: str
    tensor: torch.Tensor
    layer: Any | None

    @property
    def sources(self) -> list[torch.Tensor]:
        """What has to be whole before `value` is asked for."""
        if self.layer is None:
            return [self.tensor]
        adapters = [w for name, w in self.layer.named_parameters() if _ADAPTER_MARK in name]
        return [self.tensor, *adapters]

    @property
    def size(self) -> int:
        return int(getattr(self.tensor, "ds_numel", self.tensor.numel()))

    def value(self) -> torch.Tensor:
        if self.layer is None:
            return self.tensor.detach()
        merged = self.tensor.detach()
        for adapter in self.layer.active_adapters:
            # Adapters of a bfloat16 model are float32: the sum is rounded once, at the end.
            merged = merged + self.layer.get_delta_weight(adapter).detach()
        return merged.to(self.tensor.dtype)


def policy_weights(
    engine: Engine, config: TrainerConfig
) -> Iterator[list[tuple[str, torch.Tensor]]]:
    """Return the whole weights in `--move_model_batches` parts, adapters merged.

    Under ZeRO-3 every rank has to call it, and take every part: each one is gathered from all ranks
    and valid only until the next is asked for.

    Yields:
        (name, tensor) of the tensors of one part, under the names of the base model's checkpoint;
        tied weights come under each of their names.
    """
    for part in _parts(engine, config):
        with torch.no_grad(), _gathered(engine, part):
            yield [pair for weight in part for pair in _as_in_checkpoint(engine, weight)]


def _weights(engine: Engine) -> list[_Weight]:
    base = base_model(engine.module)
    layers = {
        f"{path}.base_layer.weight": layer
        for path, layer in base.named_modules()
        if hasattr(layer, "get_delta_weight")
    }
    # A tied lm_head is the embedding under a second name, which the engine may want as well.
    pairs = list(base.named_parameters(remove_duplicate=False))
    saved = base.state_dict(keep_vars=True)  # of buffers, those that checkpoints have
    pairs += [(name, saved[name]) for name, _ in base.named_buffers() if name in saved]
    return [
        _Weight(name.replace(".base_layer.", "."), tensor, layers.get(name))
        for name, tensor in pairs
        if _ADAPTER_MARK not in name
    ]


def _parts(engine: Engine, config: TrainerConfig) -> list[list[_Weight]]:
    """Cut the weights, in their order, into at most `--move_model_batches` of about one size."""
    every = _weights(engine)
    limit = config.move_model_batches or 1
    ends = itertools.accumulate(weight.size for weight in every)
    share = max(1, sum(weight.size for weight in every)) / limit
    numbered = [
        (min(int((end - 1) / share), limit - 1), weight) for end, weight in zip(ends, every)
    ]
    return [
        [weight for _, weight in part]
        for _, part in itertools.groupby(numbered, key=lambda pair: pair[0])
    ]


def _as_in_checkpoint(engine: Engine, weight: _Weight) -> Iterator[tuple[str, torch.Tensor]]:
    from transformers import core_model_loading  # noqa: PLC0415

    # transformers 5 keeps the experts of a layer in one tensor, checkpoints and vLLM do not.
    revert = core_model_loading.revert_weight_conversion
    yield from revert(base_model(engine.module), {weight.name: weight.value()}).items()


@contextmanager
def _gathered(engine: Engine, part: list[_Weight]) -> Iterator[None]:
    sources = (source for weight in part for source in weight.sources)
    partitioned = {id(tensor): tensor for tensor in sources if hasattr(tensor, "ds_id")}
    if engine.zero_stage != 3 or not partitioned:
        yield
        return
    import deepspeed  # noqa: PLC0415 - has been imported with the engine

    with deepspeed.zero.GatheredParameters(list(partitioned.values())):
        yield
