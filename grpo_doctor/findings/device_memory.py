"""Whether the devices' memory has room for something, from what was sampled and recorded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grpo_doctor.analysis import Analysis
from grpo_doctor.analysis.gpu import GpuMemory
from grpo_doctor.analysis.sampled import series_named
from grpo_doctor.findings.rule import Evidence
from grpo_doctor.findings.severity import percent
from grpo_doctor.findings.signals import GPU_MEMORY, Signal, any_of
from grpo_doctor.findings.view import RunView
from grpo_doctor.whatif.room import GIB, USABLE, Room, room_for_offloaded

_AVAILABLE = "host.memory_available"
# Other programs on the host may want memory too, so half of what was free is not ours to plan with.
HOST_USABLE = 0.50


def gib(count: float) -> str:
    """Return bytes in GiB, small numbers with the digits that say something."""
    size = count / GIB
    return f"{size:.2f}" if size >= 1 else f"{size:.2g}"


def on_cpu(analysis: Analysis) -> bool:
    """Return whether the model itself is in host memory."""
    return not analysis.trace.gpus and analysis.trace.run.config.get("device") == "cpu"


DEVICE_MEMORY: Signal = any_of(
    "memory of the training devices: GPU memory samples (record with `grpo-doctor run` on the "
    "GPU's machine), or, where the model is on the CPU, `host.memory_available`",
    GPU_MEMORY,
    Signal("", lambda a: on_cpu(a) and bool(series_named(a.trace, _AVAILABLE)), (_AVAILABLE,)),
)


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether some bytes more fit, None where unknown; `text` has the numbers, or the reason."""

    fits: bool | None
    text: str
    evidence: tuple[Evidence, ...] = ()


def most_used(view: RunView) -> GpuMemory | None:
    """Return the GPU whose peak is the largest part of its memory."""
    memories = view.gpu_memory
    return max(memories, key=lambda m: m.peak_bytes / m.gpu.memory_total_bytes, default=None)


def most_used_in(view: RunView, phase: str) -> tuple[float, GpuMemory] | None:
    """The GPU that a phase fills most, after the share of its memory; None if none was sampled."""
    peaks = [
        (memory.phase_peak_bytes[phase] / memory.gpu.memory_total_bytes, memory)
        for memory in view.gpu_memory
        if phase in memory.phase_peak_bytes
    ]
    return max(peaks, key=lambda peak: peak[0], default=None)


def peak_in(gpu: GpuMemory, *phases: str) -> float:
    """The most that was held in some phases, in bytes; over the whole run where that is unknown."""
    peaks = [gpu.phase_peak_bytes[p] for p in phases if p in gpu.phase_peak_bytes]
    return max(peaks, default=gpu.peak_bytes)


def room_for(view: RunView, more: float, *phases: str) -> Fit | None:
    """Compare the peak in some phases plus `more` bytes per rank with the memory there is.

    None where nothing was sampled.
    """
    memory = view.gpu_memory
    if memory:
        gpu = max(memory, key=lambda m: peak_in(m, *phases) / m.gpu.memory_total_bytes)
        peak = peak_in(gpu, *phases)
        total = float(gpu.gpu.memory_total_bytes)
        fits = peak + more <= USABLE * total
        verb = "fits in" if fits else "does not fit in"
        return Fit(
            fits,
            f"{gib(more)} GiB more on top of a peak of {peak / GIB:.1f} GiB {verb} "
            f"{percent(USABLE)} of {total / GIB:.1f} GiB",
            (
                Evidence("peak GPU memory", round(peak / GIB, 2), "GiB", "gpu.memory_used"),
                Evidence("GPU memory", round(total / GIB, 2), "GiB", gpu.gpu.name),
                Evidence("additional memory needed", round(more / GIB, 3), "GiB", "computed"),
            ),
        )
    return _on_host(view, more) if on_cpu(view.analysis) else None


def _on_host(view: RunView, more: float) -> Fit | None:
    unused = [float(np.nanmin(s.values)) for s in view.series(_AVAILABLE)]
    if not unused:
        return None
    ranks = max(1, len(view.analysis.ranks))  # at most all of them on the most-used host
    fits = more * ranks <= HOST_USABLE * min(unused)
    verb = "fits in" if fits else "does not fit in"
    return Fit(
        fits,
        f"{gib(more * ranks)} GiB more for {ranks} rank{'s' * (ranks != 1)} {verb} "
        f"{percent(HOST_USABLE)} of the {min(unused) / GIB:.1f} GiB that were free on the "
        "host, where this model is",
        (
            Evidence("lowest free host memory", round(min(unused) / GIB, 2), "GiB", _AVAILABLE),
            Evidence("additional memory needed", round(more * ranks / GIB, 3), "GiB", "computed"),
        ),
    )


@dataclass(frozen=True, slots=True)
class ModelSize:
    """What the recording says of the model; None where it does not."""

    parameters: int | None
    trained: int | None
    vocabulary: int | None
    hidden: int | None
    intermediate: int | None
    layers: int | None


def model_size(view: RunView) -> ModelSize:
    """Read what the job described."""
    config = view.trace.run.config
    names = (
        "parameters",
        "trained_parameters",
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
    )
    values = [config.get(f"model_{name}") for name in names]
    sizes = [
        v if isinstance(v, int) and not isinstance(v, bool) and v > 0 else None for v in values
    ]
    return ModelSize(*sizes)


_BYTES = {"float32": 4, "fp32": 4, "float16": 2, "fp16": 2, "bfloat16": 2, "bf16": 2}


def weight_bytes(view: RunView) -> int:
    """Return bytes of one weight; two where the dtype is not known, as on most GPUs."""
    dtype = str(view.trace.run.config.get("torch_dtype") or "").removeprefix("torch.")
    if dtype in _BYTES:
        return _BYTES[dtype]
    return 4 if on_cpu(view.analysis) else 2


# What tells whether GPU memory has room for what is offloaded.
OFFLOAD_ROOM = (GPU_MEMORY, "offload/bytes")


def room_without_offload(view: RunView) -> Fit:
    """Compare the most-used GPU's rollout peak, plus the offloaded bytes, with its size."""
    view.read(*OFFLOAD_ROOM)
    room = room_for_offloaded(view.analysis)
    return Fit(room.fits, room.text, _room_evidence(room))


def _room_evidence(room: Room) -> tuple[Evidence, ...]:
    if room.moved is None:
        return ()
    text, amount = "offloaded per rollout and rank", round(room.moved.bytes / GIB, 3)
    moved = Evidence(text, amount, "GiB", room.moved.source)
    if room.most_used is None:
        return (moved,)
    gpu = room.most_used.gpu
    where = f"gpu.memory_used of GPU {gpu.index} during rollout"
    peak, total = room.peak_bytes / GIB, gpu.memory_total_bytes / GIB
    return (
        moved,
        Evidence("peak GPU memory while offloaded", round(peak, 2), "GiB", where),
        Evidence("GPU memory", round(total, 2), "GiB", gpu.name),
    )
