"""Out of memory, told so that one knows what to change: where, holding what, and which option."""

from __future__ import annotations

import gc
import re
from typing import TYPE_CHECKING, Any

import torch

from grpo_doctor_probes import counter
from grpo_doctor_trainer.errors import OutOfMemoryError
from grpo_doctor_trainer.memory.advice import advice
from grpo_doctor_trainer.phases import phase_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.ranks.engine import Engine
    from grpo_doctor_trainer.ranks.group import Ranks
    from grpo_doctor_trainer.setup import Run

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
_ASKED = re.compile(r"ried to allocate ([\d.]+) ?(bytes|[KMGT]iB)")
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_LARGEST = 3


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that host or device memory ran out."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError | OSError) and any(sign in text for sign in _SIGNS)


def explain_out_of_memory(
    error: BaseException, config: TrainerConfig, ranks: Ranks, run: Run | None
) -> OutOfMemoryError:
    """Makes the message for a user: phase, rank, device, what it holds, and what helps.

    Args:
        error: what was raised, with its traceback: its frames still hold the tensors.
        config: the options.
        ranks: this rank.
        run: none if it was not built yet.
    """
    where = phase_of(error) or "init"
    device = _device_of(error, ranks)
    asked = _asked(str(error))
    counter(f"memory/out_of_memory/{where}", asked or 0.0)  # bytes, as far as the error says
    lines = [
        f"rank {ranks.rank} ran out of memory in phase {where} on {device}"
        + (f", asking for {human(asked)} more" if asked else ""),
        "  it holds " + _joined(holdings(run, config, device)),
    ]
    if device.type == "cuda":
        lines.append("  " + _cuda_numbers(device))
    if large := _largest_tensors(device):
        lines.append("  largest tensors: " + "; ".join(large))
    lines += [f"  try {line}" for line in advice(where, config)]
    return OutOfMemoryError("\n".join(lines))


def holdings(run: Run | None, config: TrainerConfig, device: torch.device) -> dict[str, int]:
    """Counts the bytes on a device that belong to the run for longer than a step, by kind."""
    if run is None:
        return {}
    engine = run.engine
    weights = list(engine.module.parameters())
    parts = [getattr(weight, "ds_tensor", weight) for weight in weights]
    reference = getattr(run.reference, "module", run.reference)
    frozen = [] if reference is None else list(reference.parameters())
    found = {
        "weights": _bytes(parts, device),
        "gradients": _bytes((weight.grad for weight in weights), device),
        "optimizer state": _bytes(_optimizer_tensors(engine, parts), device),
        "reference": _bytes((getattr(weight, "ds_tensor", weight) for weight in frozen), device),
    }
    if config.use_vllm and config.vllm_mode == "colocate" and device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        found["vLLM, up to"] = int(total * config.vllm_gpu_memory_utilization)
    return {kind: size for kind, size in found.items() if size}


def human(size: float) -> str:
    """Spells a number of bytes."""
    for unit, step in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= step:
            return f"{size / step:.1f} {unit}"
    return f"{size:.0f} bytes"


def _optimizer_tensors(engine: Engine, weights: list[Any]) -> Iterator[torch.Tensor]:
    base = getattr(engine.optimizer, "optimizer", engine.optimizer)
    known = {weight.data_ptr() for weight in weights}
    for master, state in base.state.items():
        if master.data_ptr() not in known:
            yield master
        yield from (value for value in state.values() if torch.is_tensor(value))


def _bytes(tensors: Iterable[torch.Tensor | None], device: torch.device) -> int:
    seen: dict[int, int] = {}
    for tensor in tensors:
        if tensor is not None and tensor.device.type == device.type and tensor.numel():
            seen[tensor.data_ptr()] = tensor.nbytes
    return sum(seen.values())


def _device_of(error: BaseException, ranks: Ranks) -> torch.device:
    on_host = isinstance(error, MemoryError) or "cpu" in str(error).lower()
    return torch.device("cpu") if on_host else ranks.device


def _asked(text: str) -> float | None:
    found = _ASKED.search(text)
    return float(found[1]) * _UNITS[found[2]] if found else None


def _joined(found: dict[str, int]) -> str:
    if not found:
        return "nothing that is counted: the models were still being loaded"
    return ", ".join(f"{kind} {human(size)}" for kind, size in found.items())


def _cuda_numbers(device: torch.device) -> str:
    free, total = torch.cuda.mem_get_info(device)
    numbers = {
        "allocated": torch.cuda.memory_allocated(device),
        "reserved": torch.cuda.memory_reserved(device),
        "peak allocated": torch.cuda.max_memory_allocated(device),
        "free": free,
        "total": total,
    }
    return "the device: " + ", ".join(f"{name} {human(size)}" for name, size in numbers.items())


def _largest_tensors(device: torch.device) -> list[str]:
    found: dict[int, tuple[int, str]] = {}
    try:
        for thing in gc.get_objects():
            # type() and not isinstance(): a proxy's __class__ may run code, or raise.
            if type(thing) is torch.Tensor and thing.device.type == device.type:
                kind = str(thing.dtype).removeprefix("torch.")
                found[thing.data_ptr()] = (thing.nbytes, f"{list(thing.shape)} {kind}")
        largest = sorted(found.values(), reverse=True)[:_LARGEST]
    except (MemoryError, RuntimeError):  # there is little left to work with
        return []
    return [f"{text} {human(size)}" for size, text in largest if size >= 1e6]
