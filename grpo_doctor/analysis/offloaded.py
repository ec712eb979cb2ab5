"""How many bytes a rank moves out of its GPU for a rollout."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grpo_doctor.analysis.gpu import MEMORY, rank_gpus
from grpo_doctor.analysis.rows import CODES
from grpo_doctor.analysis.sampled import series_named, value_at
from grpo_doctor.analysis.tracks import PhaseTrack
from grpo_doctor.trace.model import Trace

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
        leaving = _before_rollout(track)
        before = value_at(series, track.pieces.start_ns[leaving])
        after = value_at(series, track.pieces.end_ns[leaving] + _SETTLE_NS)
        drop = (before - after)[np.isfinite(before - after)]
        if len(drop):
            drops.append(float(np.median(drop)))
    return Offloaded(max(drops), f"drop of {MEMORY}") if drops and max(drops) > 0 else None


def _before_rollout(track: PhaseTrack) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Pieces of offload that a rollout or a weight sync follows."""
    following = np.isin(track.phase[1:], (CODES["rollout"], CODES["sync"]))
    return np.flatnonzero((track.phase[:-1] == CODES["offload"]) & following)
