"""A job that stands in for a live one: it answers what `look` and `flight` ask, and counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.hang.collection.examine import Visit
from grpo_doctor_probes.evidence import (
    Blocked,
    FlightDump,
    HostFacts,
    Job,
    Limits,
    Locals,
    Look,
    Member,
    Position,
    Stack,
)
from tests.evidence import FIRST_NS, UNIX_NS, EvidenceBuilder


class Clock:
    """Stands for `time`: it goes on only while somebody sleeps, or is told to."""

    def __init__(self) -> None:
        self.passed_s = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return 1024.0 + self.passed_s

    def monotonic_ns(self) -> int:
        return int(self.monotonic() * 1e9)

    def time_ns(self) -> int:
        return UNIX_NS + int(self.passed_s * 1e9)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.passed_s += seconds


class Played:
    """`questions` has a row per question in the order of asking: its name, and what it was about.

    What is set before the visit: `look_s` that a look at all processes takes, `files` and their
    dumps, `recorders` by process number, `native` and `values` by process number.
    """

    def __init__(self, build: EvidenceBuilder, clock: Clock, *extra: Member) -> None:
        self.build, self.clock = build, clock
        self.evidence = build.build()
        members = (*self.evidence.job.members, *extra)
        self.job = replace(self.evidence.job, members=members)
        self.questions: list[tuple[Any, ...]] = []
        self.messages: list[str] = []
        self.look_s = 0.0
        self.recorder_s = 0.0
        self.interrupted: int | None = None  # at which look
        self.library, self.digests, self.digest_s = "", ["a"] * 3, 0.0
        self.files: tuple[FlightDump, ...] = ()
        self.recorders = {dump.pid: dump for dump in self.evidence.dumps}
        self.native: dict[int, Stack] = {}
        self.values: dict[int, dict[str, dict[str, str]]] = {}

    def say(self, words: str) -> None:
        self.messages.append(words)

    def of(self, name: str) -> list[list[Any]]:
        """What every question of this name was about."""
        return [arguments for question, *arguments in self.questions if question == name]

    def names(self) -> list[str]:
        return [name for name, *_ in self.questions]

    def _which(self) -> int:
        return self.names().count("processes") - 1

    def processes(self, job: Job) -> Look:
        self.questions.append(("processes",))
        if self._which() == self.interrupted:
            raise KeyboardInterrupt
        self.clock.passed_s += self.look_s
        rows = tuple(process.look(self._which()) for process in self.build.processes.values())
        return Look(rows[0].at_ns, rows)

    def limits(self, job: Job) -> tuple[Limits, ...]:
        return self.evidence.limits[min(self._which(), 1)]

    def stacks(self, pids: Sequence[int], *, at_most_s: float) -> tuple[Stack, ...]:
        self.questions.append(("stacks", tuple(pids)))
        return self._stacks(pids)

    def stacks_again(
        self, earlier: Sequence[Stack], before: Look, after: Look, *, at_most_s: float
    ) -> tuple[Stack, ...]:
        self.questions.append(("stacks_again", before.at_ns, after.at_ns))
        return self._stacks([stack.pid for stack in earlier])

    def _stacks(self, pids: Sequence[int]) -> tuple[Stack, ...]:
        processes = self.build.processes
        return tuple(processes[pid].stack_at(self._which()) for pid in pids if pid in processes)

    def blocked(self, job: Job, look: Look) -> tuple[Blocked, ...]:
        self.questions.append(("blocked", look.at_ns))
        return self.evidence.blocked

    def nothing(self, job: Job) -> tuple[()]:
        return ()

    def host(self, job: Job) -> HostFacts | None:
        return self.evidence.host

    def arguments(self, pid: int, functions: frozenset[str]) -> dict[str, dict[str, str]]:
        self.questions.append(("arguments", pid))
        values_by_function = self.values.get(pid, {})
        return {name: values for name, values in values_by_function.items() if name in functions}

    def lock_file(self, pid: int, path: str) -> Blocked:
        self.questions.append(("lock_file", pid, path))
        return Blocked(pid, pid, "file-lock", target=path)

    def native_stacks(self, pids: Sequence[int], *, at_most_s: float) -> tuple[Stack, ...]:
        self.questions.append(("native_stacks", tuple(pids)))
        return tuple(self.native[pid] for pid in pids if pid in self.native)

    def positions(self, before: Look, after: Look, *, at_most_s: float) -> tuple[Position, ...]:
        pids = [process.pid for process in after.processes]
        self.questions.append(("positions", *pids))
        return tuple(Position(pid, pid, FIRST_NS, self.library, self.library) for pid in pids)

    def locals_digests(self, pids: Sequence[int], *, at_most_s: float) -> tuple[Locals, ...]:
        self.questions.append(("digests", *pids))
        self.clock.passed_s += self.digest_s
        digest = self.digests.pop(0)
        return tuple(Locals(pid, FIRST_NS, digest) for pid in pids)

    def dump_files(self, paths: Sequence[Path]) -> tuple[FlightDump, ...]:
        return self.files

    def known_dump_files(self, job: Job) -> tuple[Path, ...]:
        return ()

    def read_recorders(self, member: Member, *, at_most_s: float) -> tuple[FlightDump, ...]:
        self.questions.append(("read_recorders", member.pid, at_most_s))
        self.clock.passed_s += self.recorder_s
        return (self.recorders[member.pid],) if member.pid in self.recorders else ()

    def put(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """In place of the live one."""
        for name in (
            "processes", "limits", "stacks", "stacks_again", "blocked", "host", "arguments",
            "lock_file", "native_stacks", "positions", "locals_digests",
        ):  # fmt: skip
            monkeypatch.setattr(f"grpo_doctor_probes.look.{name}", getattr(self, name))
        for name in ("gpus", "engines", "logs", "open_spans"):
            monkeypatch.setattr(f"grpo_doctor_probes.look.{name}", self.nothing)
        for name in ("dump_files", "known_dump_files", "read_recorders"):
            monkeypatch.setattr(f"grpo_doctor_probes.flight.{name}", getattr(self, name))
        monkeypatch.setattr("grpo_doctor.hang.collection.examine.time", self.clock)
        monkeypatch.setattr("grpo_doctor.hang.collection.examine.Visit", self.visit)

    def visit(self, job: Job) -> Visit:
        """A visit that begins now, by this clock."""
        return Visit(job, self.clock.monotonic_ns(), self.clock.time_ns())

    def visited(self) -> Visit:
        """One that has seen the job twice."""
        visit, evidence = self.visit(self.job), self.evidence
        visit.add(looks=evidence.looks, stacks=evidence.stacks, limits=evidence.limits)
        return visit


Play = Callable[..., Played]
