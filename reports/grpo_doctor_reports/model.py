"""The report document as types. Every string in here is safe to show; every number is finite."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor_reports.finding_model import Checks, Finding
from grpo_doctor_reports.schema.findings import WhatifEntry
from grpo_doctor_reports.schema.memory import MemoryCompared
from grpo_doctor_reports.schema.part import Numbers
from grpo_doctor_reports.schema.report import HangEntry, RunEntry, Summary
from grpo_doctor_reports.schema.timeline import StepBuckets, Timeline
from grpo_doctor_reports.schema.views import CollectiveEntry, Heatmap, WaterfallEntry
from grpo_doctor_reports.time_model import CriticalPath, StepTime


@dataclass(frozen=True, slots=True)
class Curve:
    """One training metric; `values` is as long as `steps`; at `lost` steps it had no number."""

    name: str
    steps: list[int]
    values: Numbers
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How evaluations went, and the best of them; `best_saved`: a checkpoint of it was written."""

    curve: Curve
    best_step: int
    best: float
    best_saved: bool


@dataclass(frozen=True, slots=True)
class Report:
    """The whole document."""

    tool: str
    version: str
    run: RunEntry
    summary: Summary
    findings: list[Finding]
    checks: Checks
    waterfall: list[WaterfallEntry]
    heatmap: Heatmap
    timeline: Timeline
    curves: list[Curve]
    evaluation: Evaluation | None
    steps: list[StepTime]
    step_buckets: StepBuckets
    paths: list[CriticalPath]  # of the median step, then of the worst
    collectives: list[CollectiveEntry]
    whatif: WhatifEntry | None
    hangs: list[HangEntry]
    memory: MemoryCompared
