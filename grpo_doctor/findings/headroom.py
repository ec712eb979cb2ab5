"""Whether GPU memory has room for what a run keeps on the host, with the numbers as evidence."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor.findings.rule import Evidence
from grpo_doctor.findings.view import RunView
from grpo_doctor.whatif.room import GIB, USABLE, Room, room_for_offloaded

__all__ = ["GIB", "USABLE", "Headroom", "room_without_offload"]


@dataclass(frozen=True, slots=True)
class Headroom:
    """`fits` is None where it can't be told; `text` says why, or with which numbers."""

    fits: bool | None
    text: str
    evidence: tuple[Evidence, ...] = ()


def room_without_offload(view: RunView) -> Headroom:
    """Compares the fullest GPU's peak during rollouts, plus the offloaded bytes, with its size."""
    room = room_for_offloaded(view.analysis)
    return Headroom(room.fits, room.text, _evidence(room))


def _evidence(room: Room) -> tuple[Evidence, ...]:
    if room.moved is None:
        return ()
    text, amount = "offloaded per rollout and rank", round(room.moved.bytes / GIB, 3)
    moved = Evidence(text, amount, "GiB", room.moved.source)
    if room.fullest is None:
        return (moved,)
    gpu = room.fullest.gpu
    where = f"gpu.memory_used of GPU {gpu.index} during rollout"
    peak, total = room.peak_bytes / GIB, gpu.memory_total_bytes / GIB
    return (
        moved,
        Evidence("peak GPU memory while offloaded", round(peak, 2), "GiB", where),
        Evidence("GPU memory", round(total, 2), "GiB", gpu.name),
    )
