"""The document: what `report --json` prints, and the only input of every renderer.

`SCHEMA` changes when a field changes its meaning or goes; new fields do not change it. Numbers are
finite or null, strings come from the recording and are not to be trusted.
"""

from __future__ import annotations

from typing import Any, TypedDict

from grpo_doctor.document.finding_schema import (
    FindingEntry,
    NotApplicableEntry,
    NotRunEntry,
    PassedEntry,
    RuleErrorEntry,
    WhatifEntry,
)
from grpo_doctor.document.view_schema import Views

SCHEMA = 1


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
    rule_errors: list[RuleErrorEntry]
    views: Views
    whatif: WhatifEntry
    hangs: list[HangEntry]
