"""How much memory there is: recorded after each step, and where it runs out, said with a remedy.

A message names where it ran out, what the rank holds, and which option helps.
"""

from __future__ import annotations

import gc
import re
import shlex
import sys
from typing import TYPE_CHECKING

import torch

from grpo_doctor_probes import counter
from grpo_doctor_trainer.errors import OutOfMemoryError
from grpo_doctor_trainer.phases import phase_of
from grpo_doctor_trainer.ranks.engine import local_weights, stepped_optimizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.ranks.engine import Engine
    from grpo_doctor_trainer.ranks.group import Ranks
    from grpo_doctor_trainer.run import Run

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
_LARGEST = 3


def report_memory(device: torch.device) -> None:
    """Records the allocator's counts of this process, after a step; nothing on a CPU.

    `memory/alloc_retries` are the times, since the start, at which an allocation failed and was
    tried again after all cached memory had been given back to the device; `memory/reserved_peak`
    and `memory/allocated_peak` are the largest sizes in bytes since the start.
    """
    if device.type != "cuda":
        return
    stats = torch.cuda.memory_stats(device)
    counter("memory/alloc_retries", float(stats.get("num_alloc_retries", 0)))
    counter("memory/reserved_peak", float(stats.get("reserved_bytes.all.peak", 0)))
    counter("memory/allocated_peak", float(stats.get("allocated_bytes.all.peak", 0)))


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
    requested = _requested_bytes(str(error))
    counter(f"memory/out_of_memory/{where}", requested or 0.0)  # bytes, as far as the error says
    lines = [
        f"rank {ranks.rank} ran out of memory in phase {where} on {device}"
        + (f", asking for {human(requested)} more" if requested else ""),
        "  it holds " + _joined(holdings(run, config, device)),
    ]
    if device.type == "cuda":
        lines.append("  " + _cuda_numbers(device))
    if large := _largest_tensors(device):
        lines.append("  largest tensors: " + "; ".join(large))
    lines += [f"  {line}" for line in _what_helps(where, config, device)]
    return OutOfMemoryError("\n".join(lines))


def holdings(run: Run | None, config: TrainerConfig, device: torch.device) -> dict[str, int]:
    """Counts the bytes on a device that belong to the run for longer than a step, by kind.

    Args:
        run: none if it was not built yet.
        config: the options.
        device: that ran out of memory.
    """
    if run is None:
        return {}
    engine = run.engine
    weights = local_weights(engine.module)
    gradients = (weight.grad for weight in engine.module.parameters())
    reference = getattr(run.reference, "module", run.reference)
    sizes = {
        "weights": _bytes(weights, device),
        "gradients": _bytes(gradients, device),
        "optimizer state": _bytes(_optimizer_tensors(engine, weights), device),
        "reference": _bytes([] if reference is None else local_weights(reference), device),
    }
    if config.colocated and device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        sizes["vLLM, up to"] = int(total * config.vllm_gpu_memory_utilization)
    return {kind: size for kind, size in sizes.items() if size}


def human(size: float) -> str:
    """Spells a number of bytes."""
    for unit, step in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= step:
            return f"{size / step:.1f} {unit}"
    return f"{size:.0f} bytes"


def _what_helps(where: str, config: TrainerConfig, device: torch.device) -> list[str]:
    lines = []
    size, passes = config.per_device_train_batch_size, config.gradient_accumulation_steps
    if where in {"train", "logprob"} and size % 2 == 0:
        smaller = f"--per_device_train_batch_size {size // 2}"
        more = f"--gradient_accumulation_steps {passes * 2}"
        lines.append(f"try {smaller} {more}: the same step in smaller passes")
    if device.type == "cuda":
        command = f"grpo-doctor check -- {shlex.join(sys.argv[1:])}"
        lines.append(f"run `{command}`: it names the flags that make this fit")
    return lines or ["give the job more host memory, or start fewer ranks"]


def _optimizer_tensors(engine: Engine, weights: list[torch.Tensor]) -> Iterator[torch.Tensor]:
    own = {weight.data_ptr() for weight in weights}
    for master, state in stepped_optimizer(engine).state.items():
        if master.data_ptr() not in own:
            yield master
        yield from (value for value in state.values() if torch.is_tensor(value))


def _bytes(tensors: Iterable[torch.Tensor | None], device: torch.device) -> int:
    sizes = {
        tensor.data_ptr(): tensor.nbytes
        for tensor in tensors
        if tensor is not None and tensor.device.type == device.type and tensor.numel()
    }
    return sum(sizes.values())


def _device_of(error: BaseException, ranks: Ranks) -> torch.device:
    on_host = isinstance(error, MemoryError) or "cpu" in str(error).lower()
    return torch.device("cpu") if on_host else ranks.device


def _requested_bytes(text: str) -> float | None:
    match = _REQUESTED.search(text)
    return float(match[1]) * _UNITS[match[2]] if match else None


def _joined(sizes: dict[str, int]) -> str:
    if not sizes:
        return "nothing that is counted: the models were still being loaded"
    return ", ".join(f"{kind} {human(size)}" for kind, size in sizes.items())


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
    tensors: dict[int, tuple[int, str]] = {}
    try:
        for candidate in gc.get_objects():
            # type() and not isinstance(): a proxy's __class__ may run code, or raise.
            if type(candidate) is torch.Tensor and candidate.device.type == device.type:
                text = f"{list(candidate.shape)} {str(candidate.dtype).removeprefix('torch.')}"
                tensors[candidate.data_ptr()] = candidate.nbytes, text
        largest = sorted(tensors.values(), reverse=True)[:_LARGEST]
    except (MemoryError, RuntimeError):  # there is little left to work with
        return []
    return [f"{text} {human(size)}" for size, text in largest if size >= 1e6]
