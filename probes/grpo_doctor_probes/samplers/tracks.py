"""What a source of samples is, and what it hands over at each tick."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from grpo_doctor_probes.gpu.device import GpuRow


@dataclass(frozen=True, slots=True)
class Track:
    """One series of numbers. `gpu` is set for GPU tracks, `pid` and `rank` for per-process ones."""

    name: str
    unit: str
    gpu: str | None = None
    pid: int | None = None
    rank: int | None = None


@dataclass(slots=True)
class Reading:
    """What one source read at one tick.

    A track that is absent from `values` was not sampled now and keeps its value; None says that
    the value is not available any more. A track is declared by its first number.
    `notes` are for the user; `libraries` are those that the job has loaded since the last reading.
    """

    values: dict[Track, float | None] = field(default_factory=dict)
    gpus: list[GpuRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    libraries: list[str] = field(default_factory=list)


class Source(Protocol):
    """Reads one kind of samples. Called by one thread only; `now_ns` is CLOCK_MONOTONIC.

    Cheap to construct: whatever takes time happens in the first `read`. A `read` that raises
    switches this source off for the rest of the run, and no other.
    """

    @property
    def name(self) -> str:
        """How notes call this source."""
        ...

    def read(self, now_ns: int) -> Reading:
        """Sample what is due now."""
        ...

    def close(self) -> None:
        """Release what is held open; called once, after the last `read`."""
        ...
