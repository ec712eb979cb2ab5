"""Whether GPU memory has room for what a run keeps on the host."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor.analysis import Analysis
from grpo_doctor.analysis.gpu import GpuMemory, Offloaded, offloaded_bytes

GIB = 2**30
# Ten samples a second miss short peaks, and vLLM and NCCL allocate outside PyTorch's pool.
USABLE = 0.90


@dataclass(frozen=True, slots=True)
class Room:
    """`fits` is None if unknown; `text` has the reason, or the numbers.

    `peak_bytes` is the most that `most_used` held during a rollout.
    """

    fits: bool | None
    text: str
    moved: Offloaded | None = None
    most_used: GpuMemory | None = None
    peak_bytes: float = 0.0


def room_for_offloaded(analysis: Analysis) -> Room:
    """Compare the most-used GPU's rollout peak, plus the offloaded bytes, with its size."""
    memory = analysis.gpu_memory
    moved = offloaded_bytes(analysis.trace, analysis.tracks)
    if not memory:
        if not moved:
            return Room(None, "no GPU memory was sampled")
        text = (
            "no GPU memory was sampled, so it is unknown whether the "
            f"{_size(moved.bytes)} that are offloaded would fit"
        )
        return Room(None, text, moved)
    if not moved:
        return Room(None, "how many bytes are offloaded was not recorded")
    peaks = [(m.phase_peak_bytes.get("rollout", m.peak_bytes), m) for m in memory]
    peak, most_used = max(peaks, key=lambda p: p[0] / p[1].gpu.memory_total_bytes)
    total = most_used.gpu.memory_total_bytes
    fits = peak + moved.bytes <= USABLE * total
    verb = "fits in" if fits else "does not fit in"
    text = (
        f"a rollout's peak of {peak / GIB:.1f} GiB plus {_size(moved.bytes)} offloaded "
        f"{verb} {100 * USABLE:.0f}% of {total / GIB:.1f} GiB"
    )
    return Room(fits, text, moved, most_used, peak)


def _size(count: float) -> str:
    return f"{count / GIB:.2f} GiB" if count >= GIB / 100 else f"{count / 2**20:.3g} MiB"
