"""What a visit has seen so far, and what each part of it took."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from grpo_doctor_probes.evidence import (
    Await,
    Blocked,
    CallArguments,
    Cost,
    EngineLook,
    Evidence,
    FlightDump,
    GpuLook,
    HostFacts,
    Job,
    Limits,
    Locals,
    LogTail,
    Look,
    OpenSpanSeen,
    Position,
    Problem,
    RasAnswer,
    Stack,
)

_LISTS = (
    "looks", "stacks", "limits", "blocked", "awaits", "arguments", "positions", "locals_seen",
    "gpus", "engines", "spans", "dumps", "ras", "logs",
)  # fmt: skip
_NO_PYTHON = "Failed to find python version"  # py-spy 0.4


@dataclass
class Visit:
    """Collects; `evidence()` may be asked at any time, as after Ctrl-C."""

    job: Job
    began_ns: int = field(default_factory=time.monotonic_ns)
    taken_unix_ns: int = field(default_factory=time.time_ns)
    looks: list[Look] = field(default_factory=list)
    stacks: list[tuple[Stack, ...]] = field(default_factory=list)
    limits: list[tuple[Limits, ...]] = field(default_factory=list)
    gpus: list[tuple[GpuLook, ...]] = field(default_factory=list)
    engines: list[tuple[EngineLook, ...]] = field(default_factory=list)
    blocked: tuple[Blocked, ...] = ()
    awaits: list[Await] = field(default_factory=list)
    arguments: list[CallArguments] = field(default_factory=list)
    positions: tuple[Position, ...] = ()
    locals_seen: tuple[Locals, ...] = ()
    spans: tuple[OpenSpanSeen, ...] = ()
    dumps: list[FlightDump] = field(default_factory=list)
    ras: tuple[RasAnswer, ...] = ()
    host: HostFacts | None = None
    logs: tuple[LogTail, ...] = ()
    problems: list[Problem] = field(default_factory=list)
    parts: dict[str, float] = field(default_factory=dict)

    def seconds(self) -> float:
        """Since the visit began."""
        return (time.monotonic_ns() - self.began_ns) / 1e9

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Measures a part of the visit, which may come several times."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.parts[name] = self.parts.get(name, 0.0) + time.monotonic() - began

    def evidence(self) -> Evidence:
        """All of it, as it is now."""
        rows: dict[str, Any] = {name: tuple(getattr(self, name)) for name in _LISTS}
        return Evidence(
            job=self.job,
            taken_unix_ns=self.taken_unix_ns,
            host=self.host,
            problems=tuple(self.problems + self._refused()),
            cost=Cost(self.seconds(), self._longest_pause_ms(), dict(self.parts)),
            **rows,
        )

    def _longest_pause_ms(self) -> float:
        pauses = [stack.pause_ms for look in self.stacks for stack in look]
        pauses += [position.pause_ms for position in self.positions]
        return max(pauses, default=0.0)

    def _refused(self) -> list[Problem]:
        """What single records say they could not see: each text once, with the process where one
        alone says it."""
        stacks = self.stacks[-1] if self.stacks else ()
        records: list[Stack | FlightDump] = [s for s in stacks if not self._is_no_python(s)]
        pids_by_text: dict[str, set[int | None]] = defaultdict(set)
        for record in [*records, *self.dumps]:
            if record.problem:
                pids_by_text[record.problem].add(record.pid)
        return [
            Problem(text, pid=next(iter(pids)) if len(pids) == 1 else None)
            for text, pids in pids_by_text.items()
        ]

    def _is_no_python(self, stack: Stack) -> bool:
        """Return whether a shell or a `sleep` that works for a rank lacks a Python stack."""
        member = self.job.member(stack.pid)
        helps = member is not None and member.role != "rank"
        return helps and _NO_PYTHON in stack.problem
