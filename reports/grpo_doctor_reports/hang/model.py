"""What `attach --json` says, as typed, cleaned and bounded values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Item:
    """One piece of evidence."""

    source: str
    rank: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """What to do; `spelling` is the option as the job's framework takes it."""

    text: str
    knob: str
    spelling: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong. `cause` is the class of the verdict, empty for a healthy job."""

    state: str
    cause: str
    culprits: tuple[int, ...]
    victims: tuple[int, ...]
    confidence: float | None
    phase: str
    summary: str
    evidence: tuple[Item, ...]
    confirm: tuple[str, ...]
    fixes: tuple[Fix, ...]
    can_go_on: str


@dataclass(frozen=True, slots=True)
class Process:
    """A rank or another process of the job."""

    rank: int | None
    pid: int | None
    role: str
    state: str
    where: str
    waiting_for: str
    host: str = ""  # of several


@dataclass(frozen=True, slots=True)
class Host:
    """A host that was looked at, if there were several, and the ranks on it."""

    name: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the wait-for graph."""

    id: str
    label: str
    role: str
    guilty: bool


@dataclass(frozen=True, slots=True)
class Wait:
    """Each of `sources` waits for each of `targets`, none for itself."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    kind: str
    label: str


@dataclass(frozen=True, slots=True)
class StackGroup:
    """Processes whose main threads stand at the same place; frames innermost first."""

    ranks: tuple[int, ...]
    pids: tuple[int, ...]
    title: str
    frames: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """What could not be seen, and what would make it visible."""

    what: str
    remedy: str


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
