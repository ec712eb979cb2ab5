"""Everything seen of one job in one visit."""

from __future__ import annotations

from dataclasses import dataclass, field

from grpo_doctor_probes.evidence.job import Job
from grpo_doctor_probes.evidence.looks import (
    Await,
    Blocked,
    CallArguments,
    Locals,
    Look,
    Position,
    Stack,
)
from grpo_doctor_probes.evidence.surroundings import (
    EngineLook,
    FlightDump,
    GpuLook,
    HostFacts,
    Limits,
    LogTail,
    OpenSpanSeen,
    RasAnswer,
    RayFact,
)

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that could not be seen, and what would make it visible. `pid` None: in general."""

    what: str
    remedy: str = ""
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """What the visit cost. `max_pause_ms`: the longest that any thread of the job was stopped."""

    seconds: float = 0.0
    max_pause_ms: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)  # part: seconds


@dataclass(frozen=True, slots=True)
class Evidence:
    """One visit to one job, or what an operator has of a dead one (then `dumps` alone).

    `looks` has two or three looks, oldest first, none for dumps alone. `stacks` has one tuple per
    look, in the same order. `limits` as well. `blocked` belongs to the last sample.
    `positions` and `locals_seen` are of ranks that use a core at one line, oldest first.
    """

    job: Job
    taken_unix_ns: int
    schema: int = SCHEMA
    looks: tuple[Look, ...] = ()
    stacks: tuple[tuple[Stack, ...], ...] = ()
    limits: tuple[tuple[Limits, ...], ...] = ()
    blocked: tuple[Blocked, ...] = ()
    awaits: tuple[Await, ...] = ()  # by process, what comes from outside first
    arguments: tuple[CallArguments, ...] = ()
    positions: tuple[Position, ...] = ()
    locals_seen: tuple[Locals, ...] = ()
    gpus: tuple[tuple[GpuLook, ...], ...] = ()
    engines: tuple[tuple[EngineLook, ...], ...] = ()
    spans: tuple[OpenSpanSeen, ...] = ()
    dumps: tuple[FlightDump, ...] = ()
    ras: tuple[RasAnswer, ...] = ()
    ray: tuple[RayFact, ...] = ()  # where the cluster was asked, as by `attach --ray`
    host: HostFacts | None = None
    logs: tuple[LogTail, ...] = ()
    problems: tuple[Problem, ...] = ()
    cost: Cost = Cost()
