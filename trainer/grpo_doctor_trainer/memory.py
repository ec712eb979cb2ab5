"""Device memory: moved away during the rollout, counted, and explained when it runs out."""

from __future__ import annotations

import gc
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from grpo_doctor_probes import counter
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.engine import Engine, local_weights, stepped_optimizer
from grpo_doctor_trainer.errors import OutOfMemoryError
from grpo_doctor_trainer.phases import phase, phase_of
from grpo_doctor_trainer.ranks import Ranks
from grpo_doctor_trainer.rollout import RolloutEngine

# torch's CPU allocator raises a plain RuntimeError, and CUDA libraries have words of their own.
_SIGNS = (
    "can't allocate memory",
    "cannot allocate memory",
    "cuda out of memory",
    "cuda error: out of memory",
    "cublas_status_alloc_failed",
    "not enough memory",
    "failed to allocate",
)
_REQUESTED = re.compile(r"ried to allocate ([\d.]+) ?(bytes|[KMGT]iB)")
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


class Offload:
    """Moves what a rollout does not need out of its way; without a device it is only copied."""

    def __init__(
        self,
        config: TrainerConfig,
        engine: Engine,
        reference: Any | None,
        rollout: RolloutEngine,
    ) -> None:
        self._config, self._engine = config, engine
        self._frees = engine.device.type != "cpu"
        self._models: list[Any] = []
        if config.offload_model:
            # A device gives up no weights that the rollout reads.
            self._models += [] if self._frees and rollout.shares_weights else [engine.module]
            self._models += [] if reference is None else [getattr(reference, "module", reference)]

    def tensors(self) -> dict[str, list[torch.Tensor]]:
        """Find what moves, by kind; the optimizer has some state only after its first step."""
        return {
            "model": [tensor for model in self._models for tensor in local_weights(model)],
            "optimizer": _states(self._engine) if self._config.offload_optimizer else [],
        }

    @contextmanager
    def during_rollout(self) -> Iterator[None]:
        """Move the tensors to host memory and, at the end, back to where they were."""
        if not (self._config.offload_model or self._config.offload_optimizer):
            yield
            return
        with phase("offload", direction="to_cpu"):
            moved = [
                one for kind, found in self.tensors().items() for one in self._moved(kind, found)
            ]
            counter("offload/bytes", float(sum(storage.copy.nbytes() for storage in moved)))
            if self._frees:
                for storage in moved:
                    storage.free()
            self._collect()
        yield
        with phase("offload", direction="to_device"):
            for storage in moved:
                storage.restore()
            self._collect()

    def _moved(self, kind: str, tensors: list[torch.Tensor]) -> list[_Moved]:
        moved = [_Moved(s, self._frees) for s in _storages(tensors, self._frees)]
        counter(f"offload/{kind}_bytes", float(sum(storage.copy.nbytes() for storage in moved)))
        return moved

    def _collect(self) -> None:
        if self._config.gc_collect_after_offload:
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
    """Return each storage once; of those that can be freed, only those on the device."""
    storages = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if storage.nbytes() and not (frees and tensor.is_cpu):
            storages[storage.data_ptr()] = storage
    return list(storages.values())


def _states(engine: Engine) -> list[torch.Tensor]:
    inner = stepped_optimizer(engine)
    values = (value for state in inner.state.values() for value in state.values())
    states = [value for value in values if torch.is_tensor(value) and value.dim() > 0]
    # DeepSpeed's optimizers step float32 copies of the weights; without it these are the weights.
    policy = {weight.untyped_storage().data_ptr() for weight in local_weights(engine.module)}
    stepped = [weight for group in inner.param_groups for weight in group["params"]]
    return states + [w for w in stepped if w.untyped_storage().data_ptr() not in policy]


def report_memory(device: torch.device) -> None:
    """Record the allocator's counts of this process, after a step; nothing on a CPU.

    `memory/alloc_retries` are the times, since the start, at which an allocation failed and was
    tried again after all cached memory had been given back to the device; `memory/allocated_peak`
    is the largest size in bytes since the start.
    """
    if device.type != "cuda":
        return
    stats = torch.cuda.memory_stats(device)
    counter("memory/alloc_retries", float(stats.get("num_alloc_retries", 0)))
    counter("memory/allocated_peak", float(stats.get("allocated_bytes.all.peak", 0)))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that host or device memory ran out."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError | OSError) and any(sign in text for sign in _SIGNS)


def explain_out_of_memory(
    error: BaseException, config: TrainerConfig, ranks: Ranks
) -> OutOfMemoryError:
    """Say in which phase and on which rank and device memory ran out, and what helps."""
    where = phase_of(error) or "init"
    on_host = isinstance(error, MemoryError) or "cpu" in str(error).lower()
    device = torch.device("cpu") if on_host else ranks.device
    match = _REQUESTED.search(str(error))
    requested = float(match[1]) * _UNITS[match[2]] if match else 0.0
    counter(f"memory/out_of_memory/{where}", requested)  # bytes, as far as the error says
    more = f", asking for {match[0].removeprefix('ried to allocate ')} more" if match else ""
    lines = [f"rank {ranks.rank} ran out of memory in phase {where} on {device}{more}"]
    size, passes = config.per_device_train_batch_size, config.gradient_accumulation_steps
    if where in {"train", "logprob"} and size % 2 == 0:
        lines.append(
            f"  try --per_device_train_batch_size {size // 2} --gradient_accumulation_steps "
            f"{passes * 2}: the same step in smaller passes"
        )
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        command = f"grpo-doctor check -- {shlex.join(sys.argv[1:])}"
        lines.append(f"  {free / 2**30:.1f} of {total / 2**30:.1f} GiB are free")
        lines.append(f"  run `{command}`: it names the flags that make this fit")
    if len(lines) == 1:
        lines.append("  give the job more host memory, or start fewer ranks")
    return OutOfMemoryError("\n".join(lines))
