"""`--offload_model` and `--offload_optimizer`: makes room on the device while the rollout runs.

What moves: the optimizer's state tensors, the reference model, and the policy where the rollout
engine has weights of its own. On a machine without a device nothing can move, so the tensors,
the policy's too, are copied to other host memory and back: a stand-in that costs what it copies and
changes no value.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from grpo_doctor_probes import counter, phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.engine import Engine
    from grpo_doctor_trainer.rollout.interface import RolloutEngine


@dataclass(frozen=True)
class Offload:
    """What to move out of the way of a rollout.

    Attributes:
        find: gives the tensors to move; the optimizer has some only after its first step.
        collect_garbage: whether to hand freed memory back at once.
    """

    find: Callable[[], list[torch.Tensor]]
    enabled: bool
    collect_garbage: bool

    @contextmanager
    def during_rollout(self) -> Iterator[None]:
        """Moves the tensors to host memory and, at the end, back to where they were."""
        if not self.enabled:
            yield
            return
        with phase("offload", direction="to_cpu"):
            tensors = self.find()
            homes = [tensor.device for tensor in tensors]
            parked = [_to_host(tensor) for tensor in tensors]
            counter("offload/bytes", float(sum(tensor.nbytes for tensor in parked)))
            self._collect()
        yield
        with phase("offload", direction="to_device"):
            for tensor, home, copy in zip(tensors, homes, parked, strict=True):
                _to_home(tensor, home, copy)
            self._collect()

    def _collect(self) -> None:
        if self.collect_garbage:
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()


def make_offload(
    config: TrainerConfig, engine: Engine, reference: Any | None, rollout: RolloutEngine
) -> Offload:
    """Decides what `during_rollout` moves."""
    models: list[Any] = []
    if config.offload_model:
        stand_in = engine.device.type == "cpu"
        models += [engine.module] if stand_in or not rollout.shares_weights else []
        models += [] if reference is None else [getattr(reference, "module", reference)]

    def find() -> list[torch.Tensor]:
        tensors = [tensor for model in models for tensor in _weights(model)]
        return tensors + (_states(engine.optimizer) if config.offload_optimizer else [])

    enabled = config.offload_model or config.offload_optimizer
    return Offload(find, enabled, config.gc_collect_after_offload)


def _weights(model: Any) -> list[torch.Tensor]:
    # Under ZeRO-3 a weight is an empty shell, and what this rank holds of it is ds_tensor.
    return [getattr(weight, "ds_tensor", weight) for weight in model.parameters()]


def _states(optimizer: Any) -> list[torch.Tensor]:
    inner = getattr(optimizer, "optimizer", optimizer)
    values = (value for state in inner.state.values() for value in state.values())
    return [value for value in values if torch.is_tensor(value) and value.dim() > 0]


def _to_host(tensor: torch.Tensor) -> torch.Tensor:
    copy = tensor.data.to("cpu", copy=True)
    if tensor.device.type != "cpu":
        tensor.data = copy
    return copy


def _to_home(tensor: torch.Tensor, home: torch.device, copy: torch.Tensor) -> None:
    if home.type == "cpu":
        tensor.data.copy_(copy)
    else:
        tensor.data = copy.to(home)
