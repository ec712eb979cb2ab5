"""The document: what `report --json` prints, and the only input of every renderer.

`SCHEMA` changes when a field changes its meaning or goes; new fields do not change it. Numbers are
finite or null, strings come from the recording and are not to be trusted.

The report's memory part: what was predicted of the first step, and what was measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import field

from grpo_doctor_reports.schema.findings import (
    FindingEntry,
    NotApplicableEntry,
    NotRunEntry,
    PassedEntry,
    RuleErrorEntry,
    WhatifEntry,
)
from grpo_doctor_reports.schema.part import AnyDocument, Name, Part, Prose, read
from grpo_doctor_reports.schema.trajectories import Trajectories
from grpo_doctor_reports.schema.views import Views


class MemoryAdvice(Part, frozen=True):
    """A setting that trades memory for time: the bytes with it, estimated and corrected by this
    recording, and whether they fit; `fits_by_ledger` is by the estimate alone."""

    knob: Name = ""
    spelling: Prose = ""
    bytes: int | None = None
    fits: bool = False
    fits_by_ledger: bool = False


class MemoryCompared(Part, frozen=True):
    """The peak of the first step on the rank that uses most (the whole GPU, including other
    programs and what PyTorch's allocator caches), or in `reason` why there is nothing to compare.

    The prediction is for rows of `row_tokens`, as recorded. `longest_bytes` is what rows of
    `longest_row_tokens`, the most that the settings allow, would take by what was measured, and
    the advice is for such rows. All three are absent where the measured peak lies outside of the
    prediction, or where the settings do not say how long rows may get.
    """

    reason: Prose = ""
    rank: int | None = None
    capacity_bytes: int | None = None
    low_bytes: int | None = None
    predicted_bytes: int | None = None
    high_bytes: int | None = None
    measured_bytes: int | None = None
    row_tokens: int | None = None
    longest_row_tokens: int | None = None
    longest_bytes: int | None = None
    advice: list[MemoryAdvice] = []


SCHEMA = 1


class Tool(Part, frozen=True):
    """Who made the document."""

    name: Name = ""
    version: Name = ""


class ExitState(Part, frozen=True):
    """How the job ended: finished, failed, interrupted, killed, hung, running or unknown."""

    state: Name = "unknown"
    code: int | None = None
    signal: Name | None = None


class GpuEntry(Part, frozen=True):
    """One GPU or MIG instance."""

    uuid: Name = ""
    name: Name = ""
    index: int | None = None
    host: Name = ""
    memory_total_bytes: int | None = None


class OpenSpan(Part, frozen=True):
    """A span that never ended, and for how long it was seen open."""

    name: Name = ""
    open_s: float | None = None


class RankEntry(Part, frozen=True):
    """One rank: finished, open (killed or still running) or missing; outermost open span first."""

    rank: int = 0
    host: Name = ""
    pid: int | None = None
    state: Name = ""
    open: list[OpenSpan] = []
    clock_error_ns: int | None = None


class LossEntry(Part, frozen=True):
    """What the recording lacks."""

    dropped_events: int = 0
    missing_ranks: list[int] = []
    truncated: bool = False
    notes: list[Prose] = []


class ClockEntry(Part, frozen=True):
    """How the ranks' clocks were put on one axis, and how far off that may be; null: unknown."""

    max_error_ms: float | None = None
    methods: list[Name] = []
    text: Prose = ""


class RunEntry(Part, frozen=True):
    """The facts of the run.

    The settings are those that were given or read, and `provenance` says which of the two:
    `given` by the command, a file or a script, or `read` from the running job. Defaults are in
    neither. `without_effect` are settings that another one takes the effect from.
    """

    id: Name = ""
    source: Name = ""
    command: list[Prose] = []
    framework: Name = ""
    framework_version: Name | None = None
    model: Name = ""
    parallelism: Prose = ""
    hosts: list[Name] = []
    world_size: int = 0
    started_unix_ns: int = 0
    duration_s: float | None = None
    exit: ExitState = field(default_factory=ExitState)
    knobs: dict[Name, Any] = {}
    provenance: dict[Name, Name] = {}
    without_effect: dict[Name, Any] = {}
    versions: dict[Name, Any] = {}
    gpus: list[GpuEntry] = []
    ranks: list[RankEntry] = []
    loss: LossEntry = field(default_factory=LossEntry)
    notes: list[Prose] = []
    clock: ClockEntry | None = None


class PhaseEntry(Part, frozen=True):
    """One phase per step, the mean over ranks and used steps; p10 and p90 over steps. `start_s` is
    where it lies in the mean step, whose phases follow each other by the middle of their time.

    `steps` is how many of the used steps have any of it. Its seconds are work, wait, transfer and
    idle together, where CUDA events measured it while the GPU was in it. `device_seconds` is what
    lay between those events; `host_time` says that there were none in a run on GPUs, so that the
    seconds say when work was queued.
    """

    seconds: float = 0.0
    share: float | None = None
    start_s: float = 0.0
    work_seconds: float = 0.0
    wait_seconds: float = 0.0
    transfer_seconds: float = 0.0
    idle_seconds: float = 0.0
    p10_s: float | None = None
    p90_s: float | None = None
    steps: int | None = None
    device_seconds: float | None = None
    host_time: bool = False


class SteadyEntry(Part, frozen=True):
    """The first steady step, null if there is no steady state, and why; `step_time_s` is the mean
    of the steps from there on without those that are set apart."""

    first_step: int | None = None
    reason: Prose = ""
    step_time_s: float | None = None


class LongestStep(Part, frozen=True):
    """The longest used step, and what it took; null where there is none."""

    number: int | None = None
    seconds: float | None = None


class UtilizationEntry(Part, frozen=True):
    """Model FLOP utilization in percent of the GPUs' bf16 peak: in `train`, in the whole step.

    `padding_counted` says that padded tokens count as tokens; `reason` why there is no number.
    """

    train_pct: float | None = None
    step_pct: float | None = None
    padding_counted: bool = False
    reason: Prose = ""


class Summary(Part, frozen=True):
    """The run in numbers; null where there are none. `tone` is of the verdict: `died`, `problem`,
    `clear`, or `unjudged` where fewer than a third of the applicable checks could be made.
    `unattributed` is what no phase covers. Steps in `left_out`, by reason, are in no mean; those in
    `set_apart` are in them all, but for the warm-up."""

    verdict: Prose = ""
    tone: Name = ""
    step_time_s: float | None = None
    step_time_p10_s: float | None = None
    step_time_p90_s: float | None = None
    steps: int = 0
    longest_step: LongestStep = field(default_factory=LongestStep)
    steps_total: int = 0
    warmup_steps: int = 0
    phases: dict[Name, PhaseEntry] = {}
    unattributed: PhaseEntry | None = None
    gpu_busy_pct: float | None = None
    gpu_truly_busy_pct: float | None = None
    gpu_busy_by: Name | None = None
    tokens_per_s: float | None = None
    tokens_per_s_per_gpu: float | None = None
    utilization: UtilizationEntry = field(default_factory=UtilizationEntry)
    accounting: dict[Name, float] = {}
    steady: SteadyEntry = field(default_factory=SteadyEntry)
    set_apart: dict[Name, list[int]] = {}
    left_out: dict[Name, list[int]] = {}
    not_judged: list[Prose] = []


class HangEntry(Part, frozen=True):
    """A verdict of the watchdog; `page` is relative to the run directory, `next_steps` are what it
    said to do."""

    page: Name = ""
    headline: Prose = ""
    state: Name = ""
    next_steps: list[Prose] = []
    taken_unix_ns: int = 0


class ReportDocument(Part, frozen=True):
    """The whole document."""

    schema: int
    tool: Tool = field(default_factory=Tool)
    run: RunEntry = field(default_factory=RunEntry)
    summary: Summary = field(default_factory=Summary)
    findings: list[FindingEntry] = []
    passed: list[PassedEntry] = []
    not_run: list[NotRunEntry] = []
    not_applicable: list[NotApplicableEntry] = []
    rule_errors: list[RuleErrorEntry] = []
    views: Views = field(default_factory=Views)
    whatif: WhatifEntry = field(default_factory=WhatifEntry)
    hangs: list[HangEntry] = []
    memory: MemoryCompared = field(default_factory=MemoryCompared)
    trajectories: Trajectories | None = None

    def damage(self) -> Iterable[str]:
        """What is wrong with its charts."""
        return self.views.damage()


def read_report(document: AnyDocument) -> ReportDocument:
    """The document as typed values; every string in it is cleaned."""
    return read(document, ReportDocument, SCHEMA, "grpo-doctor report --json")
