"""The part of the document that says what is wrong, and what fixes would bring.

The document that `whatif --json` prints.

`SCHEMA` changes when a member changes its meaning or goes; new members do not change it.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from grpo_doctor_reports.schema.part import Block, Name, Part, Prose


class Evidence(Part, kw_only=False, frozen=True):
    """One measured number: what it is, and which part of the recording it is from."""

    text: Prose = ""
    value: Any = None
    unit: Name = ""
    source: Name = ""


class PredictedEntry(Part, frozen=True):
    """The change of the step time in percent, negative is faster; low <= mid <= high."""

    low: float | None = None
    mid: float | None = None
    high: float | None = None
    unit: Name = ""
    basis: Prose = ""


class FixEntry(Part, rename={"before": "from", "after": "to"}, frozen=True):
    """A change to make, verbatim as text to paste: a flag, an edit, a command. Where it does not go
    into the job's own command, `where` names the program or file, and `typed` is the part of the
    text that is typed there; both are empty elsewhere."""

    knob: Name | None = None
    before: Any = None
    after: Any = None
    spelling: Block = ""
    typed: Block = ""
    where: Name = ""
    predicted: PredictedEntry | None = None
    safety: Name = ""
    risk: Prose = ""


class NextStepEntry(Part, frozen=True):
    """What to look at or to change, where nothing can be pasted; `predicted` is what the step time
    changes by once the cause is gone."""

    text: Block = ""
    predicted: PredictedEntry | None = None
    safety: Name = ""
    risk: Prose = ""


class CostEntry(Part, frozen=True):
    """What a finding wastes: in the recorded steps, and in a day of such steps. GPU-hours are null
    without sampled GPUs, money is null without them or without a price. `at_most`: it is a
    bound, such as all of a phase that the step needs; how much of it can go is not known."""

    share: float | None = None
    seconds_per_step: float | None = None
    gpu_hours: float | None = None
    gpu_hours_per_day: float | None = None
    money_per_day: float | None = None
    currency: Name = ""
    at_most: bool = False


class FindingEntry(Part, frozen=True):
    """Something that costs time, most severe first."""

    id: Name = ""
    slug: Name = ""
    title: Name = ""
    family: Name = ""
    severity: Name = ""
    confidence: float | None = None
    cost: CostEntry = field(default_factory=CostEntry)
    phases: list[Name] = []
    ranks: list[int] = []
    steps: list[int] = []
    evidence: list[Evidence] = []
    cause: Block = ""
    fixes: list[FixEntry] = []
    next_steps: list[NextStepEntry] = []


class RuleEntry(Part, frozen=True):
    """Which rule an outcome is of."""

    id: Name = ""
    slug: Name = ""
    title: Name = ""


class PassedEntry(RuleEntry, frozen=True):
    """A rule that found nothing."""

    note: Prose = ""


class NotRunEntry(RuleEntry, frozen=True):
    """A rule that could not judge: what it lacks, one by one in `signals`."""

    missing: Prose = ""
    signals: list[Prose] = []


class NotApplicableEntry(RuleEntry, frozen=True):
    """A rule whose question does not arise; `left_out`: by --select or --ignore."""

    reason: Prose = ""
    left_out: bool = False


class RuleErrorEntry(RuleEntry, frozen=True):
    """A rule that failed: a bug in the rule; it judged nothing."""

    exception: Name = ""
    message: Prose = ""


class WhatifFix(Part, frozen=True):
    """A fix or a next step with a prediction: the change of the step time in percent. `fix` is its
    place among the finding's fixes, or (`next_step`) its next steps, `index` its number in the
    sets. A next step has no text to paste."""

    index: int = 0
    finding: Name = ""
    fix: int = 0
    next_step: bool = False
    label: Prose = ""
    spelling: Block = ""
    low: float | None = None
    mid: float | None = None
    high: float | None = None


class WhatifSet(Part, frozen=True):
    """Some fixes, by index, replayed together. Sets of fixes that exclude each other are left out,
    and in very large runs the largest sets."""

    fixes: list[int] = []
    low: float | None = None
    mid: float | None = None
    high: float | None = None


class WhatifUnknown(Part, frozen=True):
    """A fix without a prediction, and why."""

    finding: Name = ""
    label: Prose = ""
    reason: Prose = ""


class WhatifEntry(Part, frozen=True):
    """What the fixes would bring, alone and together. `chosen` is what the headline names, where
    that is predicted, `together` the remedies of all high and medium findings.
    `law_error_pct` is how far a replay of the unchanged run is off, null where none is possible;
    `steps` were replayed."""

    step_time_s: float | None = None
    steps: int = 0
    law_error_pct: float | None = None
    fixes: list[WhatifFix] = []
    sets: list[WhatifSet] = []
    chosen: list[int] = []
    together: list[int] = []
    unknown: list[WhatifUnknown] = []
    note: Prose = ""


SCHEMA = 1


class SettingChanged(Part, frozen=True, rename={"before": "from", "after": "to"}):
    """A setting by its canonical name, and as this framework and version takes it.

    `default`: what it changes from was neither given nor read from the job.
    """

    knob: Name = ""
    before: Any = None
    default: bool = False
    after: Any = None
    spelling: Block | None = None


class StepChange(Part, frozen=True):
    """The predicted change of the step time; negative is faster, low <= mid <= high."""

    low: float = 0.0
    mid: float = 0.0
    high: float = 0.0
    unit: Name = "% of step time"


class PhaseSeconds(Part, frozen=True):
    """Seconds of a phase per step, as recorded and as replayed with the settings."""

    before_s: float = 0.0
    after_s: float = 0.0


class WhatifDocument(Part, frozen=True):
    """The whole document. `predicted` is null without a prediction; `reason` says why."""

    schema: int = SCHEMA
    run: Name = ""
    source: Name = ""
    steps: int = 0
    step_time_s: float | None = None
    settings: list[SettingChanged] = []
    predicted: StepChange | None = None
    reason: Prose | None = None
    phases: dict[Name, PhaseSeconds] = {}
    basis: Prose | None = None
    assumed: Prose | None = None
