"""How busy the job's GPUs were, and how full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grpo_doctor.analysis.rows import CODES, PhaseTrack
from grpo_doctor.analysis.sampled import max_over, mean_over, series_named, value_at
from grpo_doctor.trace.intervals import Intervals
from grpo_doctor.trace.model import Gpu, Process, Series, Trace

BUSY = ("gpu.sm_active", "gpu.util")  # the first one that was sampled is used
MEMORY = "gpu.memory_used"


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """One GPU's memory: the most that was seen, over the run and per phase of its rank."""

    gpu: Gpu
    rank: int | None
    peak_bytes: float
    phase_peak_bytes: dict[str, float]

    @property
    def free_bytes(self) -> float:
        """What was never used."""
        return self.gpu.memory_total_bytes - self.peak_bytes


def busy_percent(trace: Trace, inside: Intervals) -> tuple[float, str] | None:
    """The mean over the job's GPUs within some intervals, and the name of the series; or None.

    `gpu.util` says that any kernel ran, `gpu.sm_active` how much of the chip it used, so the
    latter is preferred where it was sampled.
    """
    for name in BUSY:
        sampled = _of_usable_gpus(trace, name)
        means = [mean for s in sampled if (mean := mean_over(s, inside)) is not None]
        if means:
            return float(np.mean(means)), name
    return None


def _of_usable_gpus(trace: Trace, name: str) -> list[Series]:
    usable = {gpu.uuid for gpu in trace.gpus if gpu.visible}
    return [s for s in series_named(trace, name) if s.gpu in usable or not usable]


# A GPU that computes draws at least twice what it draws idle; a smaller range says nothing.
_POWER_RANGE = 2.0
POWER, POWER_LIMIT = "gpu.power", "gpu.power_limit"


def truly_busy_percent(trace: Trace, inside: Intervals) -> tuple[float, str] | None:
    """How much of the GPUs' ability was used, in percent, and by which series; None if unknown.

    Utilization counts any running kernel, so a rank that spins in an NCCL wait has 100%. SM
    activity (DCGM, GPM) distinguishes those; else power does, from the GPU's lowest draw to its
    limit, or to its highest draw if the limit was not sampled.
    """
    sampled = busy_percent(trace, inside)
    if sampled is not None and sampled[1] == BUSY[0]:
        return sampled
    limits = {s.gpu: float(np.nanmax(s.values)) for s in series_named(trace, POWER_LIMIT)}
    shares = [
        share
        for series in _of_usable_gpus(trace, POWER)
        if (share := _of_power(series, inside, limits.get(series.gpu))) is not None
    ]
    return (float(np.mean(shares)), POWER) if shares else None


def _of_power(series: Series, inside: Intervals, limit: float | None) -> float | None:
    lowest, highest = float(np.nanmin(series.values)), float(np.nanmax(series.values))
    mean = mean_over(series, inside)
    if mean is None or lowest <= 0 or highest < _POWER_RANGE * lowest:
        return None
    top = max(limit or highest, highest)
    return 100 * min(1.0, max(0.0, (mean - lowest) / (top - lowest)))


def gpu_memory(trace: Trace, tracks: tuple[PhaseTrack, ...]) -> tuple[GpuMemory, ...]:
    """Return the memory of each sampled GPU that the job could see and that knows its size."""
    gpus = {gpu.uuid: gpu for gpu in trace.gpus if gpu.visible and gpu.memory_total_bytes > 0}
    owner = {uuid: rank for rank, uuid in rank_gpus(trace).items()}
    by_rank = {track.rank: track for track in tracks}
    memories = []
    for series in series_named(trace, MEMORY):
        gpu = gpus.get(series.gpu or "")
        if gpu is None:
            continue
        rank = owner.get(gpu.uuid)
        track = by_rank.get(rank) if rank is not None else None
        peak = float(np.nanmax(series.values))
        memories.append(GpuMemory(gpu, rank, peak, _phase_peaks(series, track)))
    return tuple(memories)


def _phase_peaks(series: Series, track: PhaseTrack | None) -> dict[str, float]:
    if track is None:
        return {}
    peaks = {phase: max_over(series, track.of(code)) for phase, code in CODES.items()}
    return {phase: peak for phase, peak in peaks.items() if peak is not None}


def rank_gpus(trace: Trace) -> dict[int, str]:
    """Return which GPU each rank works on, as far as it is known.

    Known from the sampler, which sees each process's memory on a GPU; else, where a host has as
    many visible GPUs as ranks, from the local rank.
    """
    largest: dict[int, tuple[float, str]] = {}
    for series in series_named(trace, "gpu.process_memory"):
        if series.rank is None or series.gpu is None:
            continue
        peak = float(np.nanmax(series.values))
        if series.rank not in largest or peak > largest[series.rank][0]:
            largest[series.rank] = (peak, series.gpu)
    gpu_of_rank = {rank: uuid for rank, (_, uuid) in largest.items()}
    hosts: dict[str, tuple[list[Gpu], list[Process]]] = {gpu.host: ([], []) for gpu in trace.gpus}
    for gpu in trace.gpus:
        hosts[gpu.host][0].append(gpu)
    for process in trace.processes:
        if process.host in hosts and process.carries_steps:
            hosts[process.host][1].append(process)
    for gpus, processes in hosts.values():
        _by_local_rank(gpus, processes, gpu_of_rank)
    return gpu_of_rank


def _by_local_rank(
    of_host: Sequence[Gpu], processes: Sequence[Process], gpu_of_rank: dict[int, str]
) -> None:
    gpus = sorted((gpu for gpu in of_host if gpu.visible), key=lambda gpu: gpu.index)
    ranks = sorted({p.rank for p in processes})
    if len(gpus) != len(ranks):
        return
    local = {p.rank: p.local_rank for p in processes}
    for position, rank in enumerate(ranks):
        index = local[rank] if local[rank] is not None else position
        if index is not None and 0 <= index < len(gpus):
            gpu_of_rank.setdefault(rank, gpus[index].uuid)


COUNTER = "offload/bytes"
# Freed memory shows in the driver's count within a sampling interval or two (10 Hz).
_SETTLE_NS = 300_000_000


@dataclass(frozen=True, slots=True)
class Offloaded:
    """Bytes per rollout on the rank that moves the most, and where the number is from."""

    bytes: float
    source: str


def offloaded_bytes(trace: Trace, tracks: tuple[PhaseTrack, ...]) -> Offloaded | None:
    """From the recorded counter; else from the drop of GPU memory over the offload before a
    rollout; None where neither is known."""
    counters = [s for s in series_named(trace, COUNTER) if s.scope == "counter"]
    moved = [float(np.nanmedian(s.values)) for s in counters]
    if moved and max(moved) > 0:
        return Offloaded(max(moved), f"counter {COUNTER}")
    memory = {s.gpu: s for s in series_named(trace, MEMORY)}
    gpu_of = rank_gpus(trace)
    drops = []
    for track in tracks:
        series = memory.get(gpu_of.get(track.rank, ""))
        if series is None:
            continue
        # Pieces of offload that a rollout or a weight sync follows.
        following = np.isin(track.phase[1:], (CODES["rollout"], CODES["sync"]))
        leaving = np.flatnonzero((track.phase[:-1] == CODES["offload"]) & following)
        before = value_at(series, track.pieces.start_ns[leaving])
        after = value_at(series, track.pieces.end_ns[leaving] + _SETTLE_NS)
        drop = (before - after)[np.isfinite(before - after)]
        if len(drop):
            drops.append(float(np.median(drop)))
    return Offloaded(max(drops), f"drop of {MEMORY}") if drops and max(drops) > 0 else None
