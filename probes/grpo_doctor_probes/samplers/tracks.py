"""What a source of samples is, what it hands over at each tick, and how often it is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from grpo_doctor_probes.gpu.device import GpuRow

_JITTER_NS = 10_000_000
_MAX_PERIOD_NS = 2_000_000_000
_SHARE = 0.01  # of a core


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


class Pace:
    """Lets a part be read every `period_ns`, or less often where it is dear.

    A read that takes longer than 1% of its period is spaced out, up to `_MAX_PERIOD_NS`: on a host
    with many processes or cores it then costs about 1% of one core. One slow read alone, a cold
    cache or the first of all, changes nothing.
    """

    def __init__(self, period_ns: int) -> None:
        self._period_ns = period_ns
        self._due_ns: int | None = None
        self._cpu_ns = 0

    def due(self, now_ns: int) -> bool:
        """Whether it is time. Ticks a few ms early count, or a slow part would miss every other."""
        return self._due_ns is None or now_ns + _JITTER_NS >= self._due_ns

    def done(self, now_ns: int, cpu_ns: int) -> None:
        """Say that the read of `now_ns` has taken `cpu_ns` of CPU time."""
        usual_ns, self._cpu_ns = min(cpu_ns, self._cpu_ns), cpu_ns
        spaced_ns = min(int(usual_ns / _SHARE), _MAX_PERIOD_NS)
        self._due_ns = now_ns + max(self._period_ns, spaced_ns)
