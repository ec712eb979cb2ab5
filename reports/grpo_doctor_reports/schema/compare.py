"""The document that `compare --json` prints, and the only input of its renderers.

`SCHEMA` changes when a field changes its meaning or goes; new fields do not change it. Changes are
in percent, negative is faster; intervals are 95%; numbers are finite or null.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from grpo_doctor_reports.schema.part import AnyDocument, Name, Numbers, Part, Prose, read
from grpo_doctor_reports.schema.report import Tool

SCHEMA = 1


class Side(Part, frozen=True):
    """One of the two runs."""

    source: Name = ""
    id: Name = ""
    framework: Name = ""
    framework_version: Name | None = None
    command: list[Prose] = []
    world_size: int = 0
    gpus: Name = ""
    steps: int = 0
    steps_total: int = 0
    set_apart: int = 0
    step_time_s: float | None = None
    tokens_per_step: float | None = None


class Change(Part, frozen=True):
    """One quantity in both runs. `verdict`: faster, slower, no difference, not enough evidence."""

    before: float | None = None
    after: float | None = None
    change_pct: float | None = None
    low_pct: float | None = None
    high_pct: float | None = None
    verdict: Prose = ""
    note: Prose = ""


class PhaseChange(Part, frozen=True):
    """One phase per step in seconds, the mean over ranks; the change with its interval."""

    phase: Name = ""
    before_s: float = 0.0
    after_s: float = 0.0
    change_s: float = 0.0
    low_s: float | None = None
    high_s: float | None = None
    verdict: Prose = ""


class SettingChange(Part, frozen=True):
    """A setting that differs; its canonical name is null where it has none.

    `before_from` and `after_from` say where a value comes from: `given` by the command, `read` from
    the running job, or the `default` of a command that leaves it out; `without effect` where
    another setting takes its effect away. `affects_step` is false for what cannot change a step's
    time, such as a path.
    """

    knob: Name | None = None
    name: Name = ""
    before: Any = None
    after: Any = None
    before_from: Name = ""
    after_from: Name = ""
    affects_step: bool = True


class MetricChange(Part, frozen=True):
    """One training metric: where the two runs part, if they do.

    `state`: identical, same (apart by no more than their noise), parted, or not enough evidence.
    """

    name: Name = ""
    state: Name = ""
    step: int | None = None
    before: float | None = None
    after: float | None = None
    note: Prose = ""


class FixResult(Part, frozen=True):
    """A change of settings that was predicted from BEFORE, and its measured effect."""

    knobs: dict[Name, Any] = {}
    findings: list[Name] = []
    predicted_low_pct: float | None = None
    predicted_mid_pct: float | None = None
    predicted_high_pct: float | None = None
    measured_pct: float | None = None
    inside: bool | None = None
    note: Prose = ""
    unpredicted: Prose | None = None


class FindingChange(Part, frozen=True):
    """A rule that fired in one run or both: `gone`, `new` or `still`; `not judged before` or
    `not judged after` where the other run lacks what the rule needs."""

    id: Name = ""
    title: Name = ""
    state: Name = ""
    severity: Name = ""


class ComparisonDocument(Part, frozen=True):
    """The whole document."""

    schema: int
    tool: Tool = field(default_factory=Tool)
    before: Side = field(default_factory=Side)
    after: Side = field(default_factory=Side)
    verdict: Prose = ""
    comparable: bool = False
    cautions: list[Prose] = []
    step_time: Change = field(default_factory=Change)
    per_token: Change = field(default_factory=Change)
    phases: list[PhaseChange] = []
    settings: list[SettingChange] = []
    metrics: list[MetricChange] = []
    fixes: list[FixResult] = []
    findings: list[FindingChange] = []
    steps: dict[Name, dict[Name, Numbers]] = {}


def read_comparison(document: AnyDocument) -> ComparisonDocument:
    """The document as typed values; every string in it is cleaned."""
    return read(document, ComparisonDocument, SCHEMA, "grpo-doctor compare --json")
