"""A trace from durations: what a log says of each step, laid end to end on one process."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from grpo_doctor.importers.text import FatalLines
from grpo_doctor.phases import phase_of
from grpo_doctor.trace.columns import Interned, Rows
from grpo_doctor.trace.merge import metrics_from
from grpo_doctor.trace.model import Clock, Exit, Kind, Loss, Origin, Process, Run, Spans, Trace

_NS_PER_S = 1e9
# A step of a year, or a log of 30, is damage; so is a number that float64 has no place for.
_MOST_STEP_S = 3e7
_MOST_LOG_S = 1e9
MOST_STEPS = 1 << 53
# Timers are rounded and a step's own one is read last; beyond this they ran side by side.
_ROUNDING = 1.005
# What frameworks time outside of their step in some versions, within it in others.
_BESIDE = ("checkpoint", "eval")


@dataclass(frozen=True, slots=True)
class LoggedStep:
    """What a log says of one step: its length in seconds (None where it says none), the phases in
    the order in which the framework runs them, what ran `beside` and after it, and its metrics."""

    number: int
    seconds: float | None
    phases: tuple[tuple[str, float], ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    beside: tuple[tuple[str, float], ...] = ()


class Laid:
    """Span rows that grow step by step; `now_ns` is where the next step begins."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.names = Interned()
        self._rows = Rows()
        self._overlapping = 0
        self._most = 0.0
        self._impossible = 0

    def add(self, step: LoggedStep) -> None:
        """The next step; one without a length takes no place."""
        if step.seconds is None or step.seconds == 0:
            return
        if not 0 < step.seconds < _MOST_STEP_S or self.now_ns > _MOST_LOG_S * _NS_PER_S:
            self._impossible += 1
            return
        inside, beside = self._split(step.seconds, step.phases)
        begin_ns = self.now_ns
        end_ns = begin_ns + round(step.seconds * _NS_PER_S)
        number = float(step.number)
        self._rows.add(Kind.STEP, self.names["step"], begin_ns, end_ns, value=number)
        self._lay(inside, end_ns)
        self.now_ns = end_ns
        self._lay([*beside, *(p for p in step.beside if 0 < p[1] < _MOST_STEP_S)], None)

    def spans(self) -> Spans:
        """Return all rows, in the model's order."""
        return self._rows.spans()

    @property
    def notes(self) -> tuple[str, ...]:
        """What the report must say of how the rows were laid."""
        notes = []
        if self._impossible:
            notes.append(f"{self._impossible} steps have impossible times and are excluded.")
        if self._overlapping:
            notes.append(
                f"Phases overlapped in {self._overlapping} steps, where timers add up to as "
                f"much as {100 * self._most:.0f}% of the step; they are shortened in proportion."
            )
        return tuple(notes)

    def _split(
        self, seconds: float, phases: tuple[tuple[str, float], ...]
    ) -> tuple[list[tuple[str, float]], list[tuple[str, float]]]:
        """Return the phases within the step, and those that its timer leaves out."""
        inside = [(name, length) for name, length in phases if 0 < length < _MOST_STEP_S]
        beside: list[tuple[str, float]] = []
        for name in _BESIDE:
            if _total(inside) > _ROUNDING * seconds:
                beside += [phase for phase in inside if phase[0] == name]
                inside = [phase for phase in inside if phase[0] != name]
        share = _total(inside) / seconds
        if share > _ROUNDING:
            self._overlapping += 1
            self._most = max(self._most, share)
        if share > 1:
            inside = [(name, length / share) for name, length in inside]
        return inside, beside

    def _lay(self, phases: list[tuple[str, float]], limit_ns: int | None) -> None:
        for name, length in phases:
            end_ns = self.now_ns + round(length * _NS_PER_S)
            if limit_ns is not None:
                end_ns = min(end_ns, limit_ns)
            self._rows.add(Kind.SPAN, self.names[name], self.now_ns, end_ns, depth=1)
            self.now_ns = end_ns


def _total(phases: Iterable[tuple[str, float]]) -> float:
    return sum(length for _, length in phases)


NO_GPUS = "GPUs: the log has no samples of them."
NO_STARTS = (
    "Start times: the log has only durations, shown end to end within each step.",
    "Ranks: the log has one line for the whole job, so which rank waits for which is unknown.",
    NO_GPUS,
)
_PID = 1000


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What a log says in addition to its steps. `spans` are the names of all that its format times;
    `problems` are damage, `notes` are worth knowing, `fatal` ended the job."""

    what: str
    framework: str
    framework_version: str | None = None
    limits: tuple[str, ...] = NO_STARTS
    spans: Collection[str] = ()
    world_size: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)
    knobs: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    truncated: bool = False
    fatal: FatalLines = field(default_factory=FatalLines)


class StepLog:
    """The steps of a log, in order. A job that goes back to an earlier step was resumed: what it
    had reported of that step and later ones belongs to discarded weights."""

    def __init__(self) -> None:
        self.steps: dict[int, LoggedStep] = {}
        self.abandoned = 0

    def add(self, step: LoggedStep) -> None:
        """The next step that the log speaks of; a number of too many digits is damage."""
        if step.number > MOST_STEPS:
            return
        if step.number in self.steps or (self.steps and step.number < next(reversed(self.steps))):
            later = [number for number in self.steps if number >= step.number]
            self.abandoned += len(later)
            for number in later:
                del self.steps[number]
        self.steps[step.number] = step

    @property
    def notes(self) -> tuple[str, ...]:
        """What the report must say of it."""
        if not self.abandoned:
            return ()
        return (f"The run went back; {self.abandoned} steps from before that are left out.",)


def reconstruct(path: Path, facts: LogFacts, log: StepLog) -> Trace:
    """Return the trace of a log's steps."""
    rows = Laid()
    for step in log.steps.values():
        rows.add(step)
    timed = any(step.seconds for step in log.steps.values())
    whole = all(b - a == 1 for a, b in itertools.pairwise(log.steps))  # no row is of several steps
    metrics = {number: step.metrics for number, step in log.steps.items() if step.metrics}
    return Trace(
        source=str(path),
        run=Run(
            id=path.parent.name if path.name in _COMMON_NAMES else path.name,
            command=facts.command,
            framework=facts.framework,
            framework_version=facts.framework_version,
            world_size=facts.world_size,
            duration_ns=rows.now_ns if whole else 0,
            config=facts.config,
            knobs=facts.knobs,
            versions=facts.versions,
            exit=Exit(facts.fatal.state) if facts.fatal.text else Exit(),
            notes=(*facts.notes, *_slower(log), *facts.fatal.notes, *log.notes, *rows.notes),
            origin=Origin(
                facts.what,
                tuple(each for each in facts.limits if timed or each != NO_STARTS[0]),
                tuple(sorted({phase for name in facts.spans if (phase := phase_of(name))})),
                durations_only=True,
                fatal=facts.fatal.sentence,
            ),
        ),
        processes=(_process(rows.now_ns),),
        gpus=(),
        names=rows.names.names,
        args=(),
        spans=rows.spans(),
        series=(),
        metrics=metrics_from(metrics),
        loss=Loss(truncated=facts.truncated, notes=facts.problems),
    )


# A tenth of 20 steps is two; batches of other prompts differ by a tenth or two in length.
_ENOUGH, _SLOWER = 20, 1.25


def _slower(log: StepLog) -> tuple[str, ...]:
    """Return by how much steps got longer, where each quarter of the run is slower than the one
    before."""
    lengths = [step.seconds for step in log.steps.values() if step.seconds]
    if len(lengths) < _ENOUGH:
        return ()
    size = len(lengths) // 4
    quarters = [median(lengths[at * size : (at + 1) * size]) for at in range(4)]
    first, last = (median(part) for part in (lengths[: size // 2], lengths[-(size // 2) :]))
    if sorted(quarters) != quarters or last < _SLOWER * first:
        return ()
    return (f"Steps get longer: {first:.3g} s at first, {last:.3g} s at last.",)


_COMMON_NAMES = ("trainer_state.json", "logging.jsonl")


def _process(end_ns: int) -> Process:
    return Process(
        index=0,
        pid=_PID,
        os_pid=0,
        host="unknown",
        rank=0,
        clock=Clock(0, 0, "none: durations from a log"),
        start_ns=0,
        end_ns=end_ns,
    )
