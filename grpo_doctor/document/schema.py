"""The document: what `report --json` prints, and the only input of every renderer.

`SCHEMA` changes when a field changes its meaning or goes; new fields do not change it. Numbers are
finite or null, strings come from the recording and are not to be trusted.
"""

from __future__ import annotations

from typing import Any, TypedDict

SCHEMA = 1
Numbers = list[float | None]


class Tool(TypedDict):
    """Who made the document."""

    name: str
    version: str


class ExitState(TypedDict):
    """How the job ended: finished, failed, interrupted, killed, hung, running or unknown."""

    state: str
    code: int | None
    signal: str | None


class GpuEntry(TypedDict):
    """One GPU or MIG instance."""

    uuid: str
    name: str
    index: int
    host: str
    memory_total_bytes: int


class OpenSpan(TypedDict):
    """A span that never ended, and for how long it was seen open."""

    name: str
    open_s: float


class RankEntry(TypedDict):
    """One rank: finished, open (killed or still running) or missing; outermost open span first."""

    rank: int
    host: str
    pid: int
    state: str
    open: list[OpenSpan]
    clock_error_ns: int | None


class LossEntry(TypedDict):
    """What the recording lacks."""

    dropped_events: int
    missing_ranks: list[int]
    truncated: bool
    notes: list[str]


class ClockEntry(TypedDict):
    """How the ranks' clocks were put on one axis, and how far off that may be; null: unknown."""

    max_error_ms: float | None
    methods: list[str]
    text: str


class RunEntry(TypedDict):
    """The facts of the run."""

    id: str
    source: str
    command: list[str]
    framework: str
    framework_version: str | None
    hosts: list[str]
    world_size: int
    started_unix_ns: int
    duration_s: float
    exit: ExitState
    knobs: dict[str, Any]
    versions: dict[str, str]
    gpus: list[GpuEntry]
    ranks: list[RankEntry]
    loss: LossEntry
    notes: list[str]
    clock: ClockEntry


class PhaseEntry(TypedDict):
    """One phase per step, the mean over ranks and used steps; p10 and p90 over steps.

    Its seconds are work, wait, transfer and idle together.
    """

    seconds: float
    share: float
    work_seconds: float
    wait_seconds: float
    transfer_seconds: float
    idle_seconds: float
    p10_s: float
    p90_s: float


class SteadyEntry(TypedDict):
    """The first steady step, null if there is no steady state, and why; `step_time_s` is the mean
    of the steps from there on without those that are set apart."""

    first_step: int | None
    reason: str
    step_time_s: float | None


class Summary(TypedDict):
    """The run in numbers; null where there are none."""

    verdict: str
    step_time_s: float | None
    step_time_p10_s: float | None
    step_time_p90_s: float | None
    steps: int
    steps_total: int
    warmup_steps: int
    phases: dict[str, PhaseEntry]
    unattributed_share: float | None
    unattributed_seconds: float | None
    gpu_busy_pct: float | None
    gpu_truly_busy_pct: float | None
    gpu_busy_by: str | None
    tokens_per_s: float | None
    accounting: dict[str, float]
    steady: SteadyEntry
    set_apart: dict[str, list[int]]
    not_judged: list[str]


class EvidenceEntry(TypedDict):
    """A measured number and where it is from."""

    text: str
    value: float | int | str | None
    unit: str
    source: str


class PredictedEntry(TypedDict):
    """The change of the step time in percent, negative is faster; low <= mid <= high."""

    low: float
    mid: float
    high: float
    unit: str
    basis: str


# "from" is no name in Python.
FixEntry = TypedDict(
    "FixEntry",
    {
        "knob": str | None,
        "from": Any,
        "to": Any,
        "spelling": str,
        "predicted": PredictedEntry | None,
        "safety": str,
        "risk": str,
    },
)


class CostEntry(TypedDict):
    """What a finding wastes: in the recorded steps, and in a day of such steps. GPU-hours are null
    without sampled GPUs, money is null without them or without a price."""

    share: float
    seconds_per_step: float | None
    gpu_hours: float | None
    gpu_hours_per_day: float | None
    money: float | None
    money_per_day: float | None
    currency: str


class FindingEntry(TypedDict):
    """Something that costs time, gravest first."""

    id: str
    slug: str
    title: str
    family: str
    severity: str
    confidence: float
    cost: CostEntry
    phases: list[str]
    ranks: list[int]
    steps: list[int]
    evidence: list[EvidenceEntry]
    cause: str
    fixes: list[FixEntry]


class PassedEntry(TypedDict):
    """A rule that found nothing."""

    id: str
    slug: str
    title: str
    note: str


class NotRunEntry(TypedDict):
    """A rule that could not judge."""

    id: str
    slug: str
    title: str
    missing: str


class NotApplicableEntry(TypedDict):
    """A rule whose question does not arise."""

    id: str
    slug: str
    title: str
    reason: str


class WaterfallEntry(TypedDict):
    """One phase of the mean step; phases follow each other in the order in which they start."""

    phase: str
    start_s: float
    seconds: float
    p10_s: float
    p90_s: float
    work_seconds: float
    wait_seconds: float
    transfer_seconds: float
    idle_seconds: float


class Heatmap(TypedDict):
    """Seconds by rank (outer list) and step (inner); null where a rank has no such step."""

    ranks: list[int]
    steps: list[int]
    step_seconds: list[Numbers]
    phase_seconds: dict[str, list[Numbers]]
    wait_seconds: list[Numbers]


class Band(TypedDict):
    """A stretch that one rank spent in one phase; seconds since the trace began."""

    rank: int
    phase: str
    start_s: float
    end_s: float
    open: bool


class TrackEntry(TypedDict):
    """A sampled series, thinned so that no peak is lost; group is gpu, host or rank."""

    name: str
    label: str
    unit: str
    group: str
    t_s: list[float]
    v: Numbers


class Timeline(TypedDict):
    """The run over time; `thinned` says that not every rank or span is shown."""

    end_s: float
    bands: list[Band]
    tracks: list[TrackEntry]
    thinned: bool


class MetricsView(TypedDict):
    """Training metrics by step."""

    steps: list[int]
    series: dict[str, Numbers]


class StepEntry(TypedDict):
    """One step on the timeline: from the first rank that began it to the last that ended it.

    `kind` is warmup, steady, eval, checkpoint or open; the slowest rank has the most own work.
    """

    number: int
    start_s: float
    end_s: float
    seconds: float | None
    kind: str
    slowest_rank: int | None


class PathSegment(TypedDict):
    """A stretch of a critical path; lane is rank or engine, kind is work, transfer or idle."""

    lane: str
    rank: int | None
    phase: str
    name: str
    start_s: float
    end_s: float
    kind: str


class CriticalPath(TypedDict):
    """What a step's length was made of: at each moment the rank that all others waited for."""

    step: int
    seconds: float
    segments: list[PathSegment]


class CollectiveEntry(TypedDict):
    """Collectives of one group, name and phase per step: how many, seconds in them (mean of their
    ranks), first to last arrival, and last arrival to the end; who came last most often."""

    group: str
    name: str
    phase: str
    count: float
    seconds: float
    skew_seconds: float
    transfer_seconds: float
    last_rank: int


class Views(TypedDict):
    """What charts draw. The paths are those of the median and the longest step; null without."""

    waterfall: list[WaterfallEntry]
    heatmap: Heatmap
    timeline: Timeline
    metrics: MetricsView
    steps: list[StepEntry]
    critical_path: CriticalPath | None
    critical_path_worst: CriticalPath | None
    collectives: list[CollectiveEntry]


class WhatifFix(TypedDict):
    """A fix with a prediction: the change of the step time in percent. `fix` is its place among
    those of the finding, `index` its number in the sets."""

    index: int
    finding: str
    fix: int
    label: str
    spelling: str
    low: float
    mid: float
    high: float


class WhatifSet(TypedDict):
    """Some fixes, by index, replayed together. Sets of fixes that exclude each other are left out,
    and in very large runs the largest sets."""

    fixes: list[int]
    low: float
    mid: float
    high: float


class WhatifUnknown(TypedDict):
    """A fix without a prediction, and why."""

    finding: str
    fix: int
    label: str
    reason: str


class WhatifEntry(TypedDict):
    """What the fixes would bring, alone and together. `law_error_pct` is how far a replay of the
    unchanged run is off, null where none is possible; `steps` were replayed."""

    step_time_s: float | None
    steps: int
    law_error_pct: float | None
    fixes: list[WhatifFix]
    sets: list[WhatifSet]
    unknown: list[WhatifUnknown]
    note: str


class HangEntry(TypedDict):
    """A verdict of the watchdog; `page` is relative to the run directory."""

    page: str
    headline: str
    state: str
    taken_unix_ns: int


class Document(TypedDict):
    """The whole document."""

    schema: int
    tool: Tool
    run: RunEntry
    summary: Summary
    findings: list[FindingEntry]
    passed: list[PassedEntry]
    not_run: list[NotRunEntry]
    not_applicable: list[NotApplicableEntry]
    views: Views
    whatif: WhatifEntry
    hangs: list[HangEntry]
