"""A trace from durations: what a log says of each step, laid end to end on one process."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpo_doctor.importers.fatal import FatalLines
from grpo_doctor.importers.laid import MOST_STEPS, Laid, LoggedStep
from grpo_doctor.phases import phase_of
from grpo_doctor.trace.merge import metrics_from
from grpo_doctor.trace.model import Clock, Exit, Loss, Origin, Process, Run, Trace

NO_STARTS = (
    "Start times: the log has only durations, shown end to end within each step.",
    "Ranks: the log has one line for the whole job, so which rank waits for which is unknown.",
    "GPUs: the log has no samples of them.",
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
            exit=_exit(facts.fatal),
            notes=(*facts.notes, *facts.fatal.notes, *log.notes, *rows.notes),
            origin=Origin(
                facts.what,
                facts.limits,
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


def _exit(fatal: FatalLines) -> Exit:
    if fatal.interrupted:
        return Exit("interrupted")
    return Exit("failed") if fatal.text else Exit()


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
