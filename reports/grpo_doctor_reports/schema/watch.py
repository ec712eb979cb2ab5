"""What `grpo-doctor watch` knows of a run at one moment."""

from __future__ import annotations

import msgspec


class StepNow(msgspec.Struct):
    """A step that has ended, as one rank saw it."""

    number: int
    seconds: float
    phases: dict[str, float] = {}


class RankNow(msgspec.Struct):
    """Where a process is, and for how long; `role` is empty for a rank, `phase` once it ended."""

    rank: int
    role: str = ""
    step: int | None = None
    phase: str = ""
    since_s: float = 0.0


class GpuNow(msgspec.Struct):
    """A GPU at its last sample."""

    host: str
    index: int
    name: str
    busy_pct: float | None = None
    memory_bytes: float | None = None
    memory_total_bytes: int = 0


class VerdictNow(msgspec.Struct):
    """What the watchdog found."""

    state: str
    headline: str
    page: str
    taken_unix_ns: int = 0


class FindingNow(msgspec.Struct):
    """A finding of the report as it was drawn last."""

    id: str
    severity: str
    title: str


class Snapshot(msgspec.Struct):
    """A run at one moment.

    `state` is running, ended, finished, failed, interrupted, killed, hung, unknown, or gone where
    the directory has vanished. `where` counts processes by the span they are in; `longest` are
    those that have been in theirs longest. `findings` is None before the first report is drawn.
    """

    run: str
    state: str
    now_unix_s: float
    command: list[str] = []
    framework: str = "unknown"
    exit_code: int | None = None
    duration_s: float | None = None
    steps: list[StepNow] = []
    ranks: int = 0
    where: dict[str, int] = {}
    longest: list[RankNow] = []
    gpus: list[GpuNow] = []
    verdicts: list[VerdictNow] = []
    findings: list[FindingNow] | None = None

    @property
    def continues(self) -> bool:
        """Whether the run has not ended, as far as is known."""
        return self.state in ("running", "unknown")
