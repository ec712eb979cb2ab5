"""The report document as types. Every string in here is safe to show; every number is finite."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor_reports.finding_model import Checks, Finding
from grpo_doctor_reports.schema.memory import MemoryCompared
from grpo_doctor_reports.schema.part import Numbers
from grpo_doctor_reports.schema.report import ClockEntry, GpuEntry, LossEntry, RankEntry
from grpo_doctor_reports.schema.views import RankMeans
from grpo_doctor_reports.time_model import Accounting, Collective, CriticalPath, StepTime
from grpo_doctor_reports.timeline_model import StepBuckets, Timeline
from grpo_doctor_reports.whatif_model import WhatIf


@dataclass(frozen=True, slots=True)
class Run:
    """Facts of the run."""

    id: str
    source: str
    command: list[str]
    framework: str
    framework_version: str
    model: str
    parallelism: str
    hosts: list[str]
    world_size: int
    started_unix_ns: int
    duration_s: float | None
    exit_state: str
    exit_code: int | None
    exit_signal: str
    knobs: list[tuple[str, str]]
    versions: list[tuple[str, str]]
    gpus: list[GpuEntry]
    ranks: list[RankEntry]
    loss: LossEntry
    notes: list[str]  # worth knowing, nothing lost: no NVIDIA driver, for example
    clock: ClockEntry | None


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """Seconds of one phase per step: the mean over ranks and used steps, and its four kinds."""

    phase: str
    seconds: float
    share: float | None
    work_s: float
    wait_s: float
    transfer_s: float
    idle_s: float
    p10_s: float | None
    p90_s: float | None
    host_time: bool  # it computes on GPUs, and no event of theirs measured it


@dataclass(frozen=True, slots=True)
class Summary:
    """The headline numbers."""

    verdict: str
    step_time_s: float | None
    p10_s: float | None
    p90_s: float | None
    steps: int
    steps_total: int
    warmup_steps: int
    phases: list[PhaseTime]
    unattributed_share: float | None
    unattributed_s: float | None
    gpu_busy_pct: float | None
    gpu_truly_busy_pct: float | None  # by power or by active SMs: waiting in NCCL is not busy
    gpu_busy_by: str
    tokens_per_s: float | None
    tokens_per_s_per_gpu: float | None
    accounting: Accounting
    not_judged: list[str]


@dataclass(frozen=True, slots=True)
class WaterfallBar:
    """One phase of the mean step."""

    phase: str
    start_s: float
    seconds: float
    p10_s: float | None
    p90_s: float | None
    work_s: float
    wait_s: float
    transfer_s: float
    idle_s: float


@dataclass(frozen=True, slots=True)
class Heatmap:
    """Seconds by rank (rows) and step (columns); None where a rank has no such step.

    Of `steps_total` steps the slowest are here; the means per used step are of every rank.
    """

    ranks: list[int]
    steps: list[int]
    step_s: list[Numbers]
    wait_s: list[Numbers]
    phases_s: dict[str, list[Numbers]]
    phase_waits_s: dict[str, list[Numbers]]
    steps_total: int
    means: RankMeans


@dataclass(frozen=True, slots=True)
class Curve:
    """One training metric; `values` is as long as `steps`."""

    name: str
    steps: list[int]
    values: Numbers


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How evaluations went, and the best of them; `best_saved`: a checkpoint of it was written."""

    curve: Curve
    best_step: int
    best: float
    best_saved: bool


@dataclass(frozen=True, slots=True)
class HangPage:
    """A verdict on a stuck moment of this run; `page` is a relative path that is safe to link."""

    page: str
    shown: str
    headline: str
    state: str
    next_steps: list[str]
    taken_unix_ns: int


@dataclass(frozen=True, slots=True)
class Report:
    """The whole document."""

    tool: str
    version: str
    run: Run
    summary: Summary
    findings: list[Finding]
    checks: Checks
    waterfall: list[WaterfallBar]
    heatmap: Heatmap
    timeline: Timeline
    curves: list[Curve]
    evaluation: Evaluation | None
    steps: list[StepTime]
    step_buckets: StepBuckets
    paths: list[CriticalPath]  # of the median step, then of the worst
    collectives: list[Collective]
    whatif: WhatIf | None
    hangs: list[HangPage]
    memory: MemoryCompared
