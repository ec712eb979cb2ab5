"""Whether GPU memory has room for what a run keeps on the host."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor.analysis.offloaded import offloaded_bytes
from grpo_doctor.findings.rule import Evidence
from grpo_doctor.findings.view import RunView
from grpo_doctor.findings.wording import percent

GIB = 2**30
# Ten samples a second miss short peaks, and vLLM and NCCL allocate outside PyTorch's pool.
USABLE = 0.90


@dataclass(frozen=True, slots=True)
class Headroom:
    """`fits` is None where it can't be told; `text` says why, or with which numbers."""

    fits: bool | None
    text: str
    evidence: tuple[Evidence, ...] = ()


def room_without_offload(view: RunView) -> Headroom:
    """Compares the fullest GPU's peak during rollouts, plus the offloaded bytes, with its size."""
    memory = view.analysis.gpu_memory
    moved = offloaded_bytes(view.trace, view.analysis.tracks)
    if not memory:
        if not moved:
            return Headroom(None, "no GPU memory was sampled")
        return Headroom(
            None,
            "no GPU memory was sampled, so nobody can say whether the "
            f"{moved.bytes / GIB:.2f} GiB that are offloaded would fit",
            (_bytes_evidence(moved.bytes, moved.source),),
        )
    if not moved:
        return Headroom(None, "how many bytes are offloaded was not recorded")
    peaks = [(m.phase_peak_bytes.get("rollout", m.peak_bytes), m) for m in memory]
    peak, fullest = max(peaks, key=lambda p: p[0] / p[1].gpu.memory_total_bytes)
    total = fullest.gpu.memory_total_bytes
    fits = peak + moved.bytes <= USABLE * total
    verb = "fits into" if fits else "does not fit into"
    text = (
        f"a rollout's peak of {peak / GIB:.1f} GiB plus {moved.bytes / GIB:.2f} GiB offloaded "
        f"{verb} {percent(USABLE)} of {total / GIB:.1f} GiB"
    )
    where = f"gpu.memory_used of GPU {fullest.gpu.index} during rollout"
    return Headroom(
        fits,
        text,
        (
            _bytes_evidence(moved.bytes, moved.source),
            Evidence("peak GPU memory while offloaded", round(peak / GIB, 2), "GiB", where),
            Evidence("GPU memory", round(total / GIB, 2), "GiB", fullest.gpu.name),
        ),
    )


def _bytes_evidence(count: float, source: str) -> Evidence:
    return Evidence("offloaded per rollout and rank", round(count / GIB, 3), "GiB", source)
