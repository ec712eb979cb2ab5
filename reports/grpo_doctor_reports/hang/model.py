"""What page and terminal draw of `attach --json`: its parts, and waits with their ends spread."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor_reports.schema.attach import Host, Point, Problem, Process, StackGroup, Verdict


@dataclass(frozen=True, slots=True)
class Wait:
    """Each of `sources` waits for each of `targets`, none for itself."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    kind: str
    label: str


@dataclass(frozen=True, slots=True)
class Visit:
    """One visit to one job."""

    host: str
    framework: str
    world_size: int | None
    ranks_seen: tuple[int, ...]
    ranks_missing: tuple[int, ...]
    verdict: Verdict
    processes: tuple[Process, ...]
    points: tuple[Point, ...]
    waits: tuple[Wait, ...]
    cycle: tuple[str, ...]
    stacks: tuple[StackGroup, ...]
    undo: tuple[str, ...]
    problems: tuple[Problem, ...]
    seconds: float | None
    max_pause_ms: float | None
    taken_unix_ns: int
    hosts: tuple[Host, ...] = ()
