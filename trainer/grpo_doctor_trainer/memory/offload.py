"""`--offload_model` and `--offload_optimizer`: makes room on the device while the rollout runs.

What moves: the optimizer's state tensors and its own copy of the weights, the reference model, and
the policy where the rollout engine has weights of its own. On a machine without a device nothing
can move, so the tensors, the policy's too, are copied to other host memory and back: a stand-in
that costs what it copies and changes no value.

With an engine of its own the order is: its weights are brought up to date while the policy is still
there, the policy goes, the engine takes the room for its KV cache, and after the rollout the same
backwards.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from grpo_doctor_probes import counter
from grpo_doctor_trainer.phases import phase
from grpo_doctor_trainer.ranks.engine import local_weights, stepped_optimizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.ranks.engine import Engine
    from grpo_doctor_trainer.rollout import RolloutEngine


@dataclass(frozen=True)
class Offload:
    """What to move out of the way of a rollout.

    Attributes:
        find_models: gives the tensors of models to move.
        find_states: gives those of the optimizer, which has some only after its first step.
        collect_garbage: whether to hand freed memory back at once.
        frees: whether moved memory is given back; without a device it is only copied.
    """

    find_models: Callable[[], list[torch.Tensor]]
    find_states: Callable[[], list[torch.Tensor]]
    enabled: bool
    collect_garbage: bool
    frees: bool = False

    @contextmanager
    def during_rollout(self) -> Iterator[None]:
        """Moves the tensors to host memory and, at the end, back to where they were."""
        if not self.enabled:
            yield
            return
        with phase("offload", direction="to_cpu"):
            moved = self._moved("model", self.find_models())
            moved += self._moved("optimizer", self.find_states())
            counter("offload/bytes", float(sum(storage.copy.nbytes() for storage in moved)))
            if self.frees:
                for storage in moved:
                    storage.free()
            self._collect()
        yield
        with phase("offload", direction="to_device"):
            for storage in moved:
                storage.restore()
            self._collect()

    def _moved(self, kind: str, tensors: list[torch.Tensor]) -> list[_Moved]:
        moved = [_Moved(s, self.frees) for s in _storages(tensors, self.frees)]
        counter(f"offload/{kind}_bytes", float(sum(storage.copy.nbytes() for storage in moved)))
        return moved

    def _collect(self) -> None:
        if self.collect_garbage:
            with phase("offload/collect"):
                gc.collect()
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()


class _Moved:
    """One storage and its copy in host memory.

    The storage moves and not the tensors: under ZeRO-1 and -2 all weights are views of one buffer,
    which the optimizer writes. A weight that came back as a tensor of its own would never change
    again, and moving it would have freed nothing.
    """

    def __init__(self, storage: torch.UntypedStorage, pinned: bool) -> None:
        self._storage = storage
        # Copies to and from pageable memory are several times slower; torch keeps what it has
        # pinned for the next rollout.
        pinned = pinned and torch.cuda.is_available()
        host = torch.empty(storage.nbytes(), dtype=torch.uint8, pin_memory=pinned)
        self.copy = host.untyped_storage().copy_(storage)

    def free(self) -> None:
        self._storage.resize_(0)

    def restore(self) -> None:
        if self._storage.nbytes() != self.copy.nbytes():
            self._storage.resize_(self.copy.nbytes())
        self._storage.copy_(self.copy)


def _storages(tensors: list[torch.Tensor], frees: bool) -> list[torch.UntypedStorage]:
    """Gives each storage once; of those that can be freed, only what is not on the host already."""
    storages = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if storage.nbytes() and not (frees and tensor.is_cpu):
            storages[storage.data_ptr()] = storage
    return list(storages.values())


def make_offload(
    config: TrainerConfig, engine: Engine, reference: Any | None, rollout: RolloutEngine
) -> Offload:
    """Decides what `during_rollout` moves."""
    models: list[Any] = []
    if config.offload_model:
        stand_in = engine.device.type == "cpu"
        models += [engine.module] if stand_in or not rollout.shares_weights else []
        models += [] if reference is None else [getattr(reference, "module", reference)]

    def find_models() -> list[torch.Tensor]:
        return [tensor for model in models for tensor in local_weights(model)]

    def find_states() -> list[torch.Tensor]:
        return _states(engine) if config.offload_optimizer else []

    enabled = config.offload_model or config.offload_optimizer
    frees = engine.device.type != "cpu"
    return Offload(find_models, find_states, enabled, config.gc_collect_after_offload, frees)


def _states(engine: Engine) -> list[torch.Tensor]:
    inner = stepped_optimizer(engine)
    values = (value for state in inner.state.values() for value in state.values())
    states = [value for value in values if torch.is_tensor(value) and value.dim() > 0]
    # DeepSpeed's optimizers step float32 copies of the weights; without it these are the weights.
    policy = {weight.untyped_storage().data_ptr() for weight in local_weights(engine.module)}
    stepped = [weight for group in inner.param_groups for weight in group["params"]]
    return states + [w for w in stepped if w.untyped_storage().data_ptr() not in policy]
