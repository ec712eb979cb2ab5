"""The part of the document that says what is wrong, and what fixes would bring."""

from __future__ import annotations

from typing import Any, TypedDict


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
    """A rule that could not judge: what it lacks, one by one in `signals`."""

    id: str
    slug: str
    title: str
    missing: str
    signals: list[str]


class NotApplicableEntry(TypedDict):
    """A rule whose question does not arise; `left_out`: by --select or --ignore."""

    id: str
    slug: str
    title: str
    reason: str
    left_out: bool


class RuleErrorEntry(TypedDict):
    """A rule that failed: a defect of the rule, and no word about the run."""

    id: str
    slug: str
    title: str
    exception: str
    message: str


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
