"""Whether the devices' memory has room for something, from what was sampled and recorded.

Fixes that move memory for time: less of it used, the cheapest first, or offload switched off.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from grpo_doctor.analysis import Analysis
from grpo_doctor.analysis.gpu import GpuMemory
from grpo_doctor.analysis.sampled import series_named
from grpo_doctor.findings.rule import Evidence, Fix, Safety
from grpo_doctor.findings.shared import percent
from grpo_doctor.findings.signals import GPU_MEMORY, Signal, any_of
from grpo_doctor.findings.view import RunView, integer
from grpo_doctor.whatif import Prediction, Replay, Settings, WhatIf, without
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


def room_for(view: RunView, more: float, *phases: str) -> Room | None:
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
        return Room(
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


def _on_host(view: RunView, more: float) -> Room | None:
    unused = [float(np.nanmin(s.values)) for s in view.series(_AVAILABLE)]
    if not unused:
        return None
    ranks = max(1, len(view.analysis.ranks))  # at most all of them on the most-used host
    fits = more * ranks <= HOST_USABLE * min(unused)
    verb = "fits in" if fits else "does not fit in"
    return Room(
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
    return ModelSize(*(v if (integer(v) or 0) > 0 else None for v in values))


_BYTES = {"float32": 4, "fp32": 4, "float16": 2, "fp16": 2, "bfloat16": 2, "bf16": 2}


def weight_bytes(view: RunView) -> int:
    """Return bytes of one weight; two where the dtype is not known, as on most GPUs."""
    dtype = str(view.trace.run.config.get("torch_dtype") or "").removeprefix("torch.")
    if dtype in _BYTES:
        return _BYTES[dtype]
    return 4 if on_cpu(view.analysis) else 2


# What tells whether GPU memory has room for what is offloaded.
OFFLOAD_ROOM = (GPU_MEMORY, "offload/bytes")


def room_without_offload(view: RunView) -> Room:
    """Compare the most-used GPU's rollout peak, plus the offloaded bytes, with its size."""
    view.read(*OFFLOAD_ROOM)
    return room_for_offloaded(view.analysis)


MICRO_BATCH, PASSES = "train.micro_batch", "train.grad_accumulation"
VLLM_SHARE = "vllm.gpu_memory_utilization"
SHARE_RISK = "vLLM fails at startup if this share is not free; then lower it by 0.05."
Pairs = tuple[tuple[str, object], ...]
_VLLMS = ("rollout", "sync", "init")
_MORE_PASSES = "Keeps the completions per optimizer step, in more passes."


def larger_share(view: RunView, free: float) -> float | None:
    """The share of the GPU that vLLM may have: what it has and the `free` share that was never
    used, less a tenth, in twentieths. None where that is no more than it has, or not known."""
    now = view.now(VLLM_SHARE)
    if now is None:
        return None
    target = math.floor(20 * min(USABLE, now + free - (1 - USABLE))) / 20
    return target if target > now else None


def fixes_for_memory(view: RunView, where: str | None) -> list[Fix]:
    """What a run may set if memory is short in the phase `where`; empty where nothing is known."""
    return [
        _joined(view, settings, _cost(view, settings), risk)
        for settings, risk in _savings(view, where)
    ]


def _savings(view: RunView, where: str | None) -> Iterator[tuple[Pairs, str]]:
    share, micro = view.now(VLLM_SHARE), view.now(MICRO_BATCH)
    passes = view.now(PASSES)
    # Old versions of ms-swift have no mode: theirs is what is called colocate now.
    colocated = view.now("vllm.use") is True and view.now("vllm.mode") != "server"
    if colocated and share and where in _VLLMS:
        less = max(0.1, round(share - 0.1, 2))
        yield ((VLLM_SHARE, less),), "Makes vLLM's cache smaller."
    if isinstance(micro, int) and micro >= 2 and micro % 2 == 0:
        half = (MICRO_BATCH, micro // 2)
        if isinstance(passes, int):
            yield (half, (PASSES, passes * 2)), _MORE_PASSES
        elif passes is None and _passes_follow(view):
            yield (half,), _MORE_PASSES
    if view.now("train.gradient_checkpointing") is False:
        on = (("train.gradient_checkpointing", True),)
        yield on, "Recomputes the layers in the backward pass."
    preset = view.now("deepspeed.preset")
    if isinstance(preset, str) and "zero2" in preset and len(view.analysis.ranks) > 1:
        stage = (("deepspeed.preset", preset.replace("zero2", "zero3")),)
        yield stage, "Gathers the weights in every pass."
    elif colocated and view.now("offload.optimizer") is False and where == "rollout":
        yield (("offload.optimizer", True),), "Moves optimizer state in every step."


def _cost(view: RunView, settings: Pairs) -> WhatIf:
    if not len(view.analysis.step_seconds):
        return "the run has no complete step"
    outcome = view.gain(Settings(settings))
    if isinstance(outcome, Prediction) and outcome.high > 0:
        cost = f"{outcome.mid:+.1f}% of the step by {outcome.grounds}"
        return f"it costs time and frees memory: {cost}"
    return Settings(settings)


def in_passes_of(
    view: RunView, micro: int, passes: int, change: WhatIf | None = None, *, risk: str
) -> Fix:
    """Return the same completions per optimizer step in `passes` of `micro` completions each."""
    return _joined(view, ((MICRO_BATCH, micro), (PASSES, passes)), change, risk)


def _joined(view: RunView, settings: Pairs, change: WhatIf | None, risk: str) -> Fix:
    """Return all settings as one fix."""
    safety: Safety = "changes-numerics" if settings[0][0] == MICRO_BATCH else "same-math"
    spelled = [row for row in settings if row[0] != PASSES or not _passes_follow(view)]
    return view.settings(spelled, change or Settings(settings), safety=safety, risk=risk)


def _passes_follow(view: RunView) -> bool:
    """Whether the framework counts the passes itself, from the completions in each: verl, OpenRLHF
    and Megatron have a setting for these alone."""
    return bool(view.spell(MICRO_BATCH, 1)) and not view.spell(PASSES, 1)


SWITCHES = {"offload.optimizer": "the optimizer state", "offload.model": "weights"}


def switched_on(view: RunView) -> list[str]:
    """Return the settings of this run that offload something during a rollout."""
    return [name for name in SWITCHES if view.now(name) is True]


def offload_off_if_it_fits(view: RunView, *, or_unknown: bool = False) -> tuple[Fix, ...]:
    """Offload switched off where it is on and memory has room without it, or that is unknown."""
    room = room_without_offload(view)
    fits = room.fits or (or_unknown and room.fits is None)
    return (offload_off(view, room),) if fits and switched_on(view) else ()


def offload_off(view: RunView, room: Room) -> Fix:
    """Switches off all that is on, with the replay of a run without offload spans."""
    change = Replay((without("offload"),), "without its offload spans")
    risk = (
        f"Needs GPU memory: {room.text}."
        if room.fits
        else f"First check that GPU memory is large enough during a rollout: {room.text}."
    )
    if on_cpu(view.analysis):
        risk = "No GPU memory is at stake: this model is in host memory."
    on = switched_on(view)
    if not on and view.now("vllm.sleep_level"):
        return view.setting("vllm.sleep_level", 0, change, risk=risk)
    if not on:
        text = "switch off the offload of weights and optimizer state around a rollout"
        return view.advice(text, change, risk=risk)
    return view.settings([(name, False) for name in on], change, risk=risk)
