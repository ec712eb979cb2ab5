"""Findings, their fixes, and the rules that did not fire, as types."""

from __future__ import annotations

from dataclasses import dataclass, field

from grpo_doctor_reports.schema.findings import CostEntry, PredictedEntry


@dataclass(frozen=True, slots=True)
class Evidence:
    """One measured fact; `shown` is its value with unit, for people."""

    text: str
    shown: str
    source: str


@dataclass(frozen=True, slots=True)
class Fix:
    """One prescription, to be pasted; `typed` at the place `where`, unless that is empty."""

    knob: str
    before: str
    after: str
    spelling: str
    predicted: PredictedEntry | None
    safety: str
    risk: str
    typed: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class NextStep:
    """Advice where nothing can be pasted; `predicted` is the change once the cause is gone."""

    text: str
    predicted: PredictedEntry | None
    safety: str
    risk: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One diagnosis. `anchor` is unique in the page and safe as an HTML id."""

    anchor: str
    id: str
    slug: str
    title: str
    family: str
    severity: str
    confidence: float | None
    cost: CostEntry
    phases: list[str]
    ranks: list[int]
    steps: list[int]
    evidence: list[Evidence]
    cause: str
    fixes: list[Fix]
    next_steps: list[NextStep]


@dataclass(frozen=True, slots=True)
class Check:
    """A rule that did not fire, and why.

    `signals` are what it lacks, one by one; `left_out` says that its reader did not ask it.
    """

    id: str
    slug: str
    title: str
    note: str
    signals: list[str] = field(default_factory=list)
    left_out: bool = False


@dataclass(frozen=True, slots=True)
class Checks:
    """The rules that did not fire, by outcome."""

    passed: list[Check]
    not_run: list[Check]
    not_applicable: list[Check]
    failed: list[Check] = field(default_factory=list)
