"""The comparison as types. Every string in here is safe to show; every number is finite."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor_reports.schema.compare import Change, FindingChange, MetricChange, PhaseChange


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs."""

    source: str
    run: str
    framework: str
    command: str
    world_size: int
    gpus: str
    steps: int
    steps_total: int
    step_time_s: float | None
    tokens_per_step: float | None


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that differs; values as text."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class FixResult:
    """What changed settings were predicted to bring, and what they brought, in percent."""

    findings: list[str]
    low_pct: float | None
    mid_pct: float | None
    high_pct: float | None
    measured_pct: float | None
    inside: bool | None
    note: str
    unpredicted: str


@dataclass(frozen=True, slots=True)
class Curve:
    """Step numbers and seconds of one run."""

    steps: list[float]
    seconds: list[float]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The whole document."""

    tool: str
    version: str
    verdict: str
    comparable: bool
    cautions: list[str]
    before: Side
    after: Side
    step_time: Change
    per_token: Change
    phases: list[PhaseChange]
    settings: list[Setting]
    metrics: list[MetricChange]
    fixes: list[FixResult]
    findings: list[FindingChange]
    curves: tuple[Curve, Curve]
