"""Whether GPU memory has room for what a run keeps on the host."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor.analysis import Analysis
from grpo_doctor.analysis.gpu import offloaded_bytes
from grpo_doctor_reports.schema.findings import Evidence

GIB = 2**30
# Ten samples a second miss short peaks, and vLLM and NCCL allocate outside PyTorch's pool.
USABLE = 0.90


@dataclass(frozen=True, slots=True)
class Room:
    """Whether some bytes more fit, None if unknown; `text` has the numbers, or the reason."""

    fits: bool | None
    text: str
    evidence: tuple[Evidence, ...] = ()


def room_for_offloaded(analysis: Analysis) -> Room:
    """Compare the most-used GPU's rollout peak, plus the offloaded bytes, with its size."""
    memory = analysis.gpu_memory
    moved = offloaded_bytes(analysis.trace, analysis.tracks)
    what, where = "offloaded per rollout and rank", moved.source if moved else ""
    offloaded = Evidence(what, round(moved.bytes / GIB, 3) if moved else None, "GiB", where)
    if not memory:
        if not moved:
            return Room(None, "no GPU memory was sampled")
        text = (
            "no GPU memory was sampled, so it is unknown whether the "
            f"{_size(moved.bytes)} that are offloaded would fit"
        )
        return Room(None, text, (offloaded,))
    if not moved:
        return Room(None, "how many bytes are offloaded was not recorded")
    peaks = [(m.phase_peak_bytes.get("rollout", m.peak_bytes), m) for m in memory]
    peak, most_used = max(peaks, key=lambda p: p[0] / p[1].gpu.memory_total_bytes)
    gpu, total = most_used.gpu, most_used.gpu.memory_total_bytes
    fits = peak + moved.bytes <= USABLE * total
    verb = "fits in" if fits else "does not fit in"
    text = (
        f"a rollout's peak of {peak / GIB:.1f} GiB plus {_size(moved.bytes)} offloaded "
        f"{verb} {100 * USABLE:.0f}% of {total / GIB:.1f} GiB"
    )
    where = f"gpu.memory_used of GPU {gpu.index} during rollout"
    evidence = (
        offloaded,
        Evidence("peak GPU memory while offloaded", round(peak / GIB, 2), "GiB", where),
        Evidence("GPU memory", round(total / GIB, 2), "GiB", gpu.name),
    )
    return Room(fits, text, evidence)


def _size(count: float) -> str:
    return f"{count / GIB:.2f} GiB" if count >= GIB / 100 else f"{count / 2**20:.3g} MiB"
