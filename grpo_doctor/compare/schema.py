"""The document that `compare --json` prints, and the only input of its renderers.

`SCHEMA` changes when a field changes its meaning or goes; new fields do not change it. Changes are
in percent, negative is faster; intervals are 95%; numbers are finite or null.
"""

from __future__ import annotations

from typing import Any, TypedDict

SCHEMA = 1


class Side(TypedDict):
    """One of the two runs."""

    source: str
    id: str
    framework: str
    framework_version: str | None
    command: list[str]
    world_size: int
    gpus: str
    steps: int
    steps_total: int
    set_apart: int
    step_time_s: float | None
    tokens_per_step: float | None


class Change(TypedDict):
    """One quantity in both runs. `verdict`: faster, slower, no difference, not enough evidence."""

    before: float | None
    after: float | None
    change_pct: float | None
    low_pct: float | None
    high_pct: float | None
    verdict: str
    note: str


class PhaseChange(TypedDict):
    """One phase per step in seconds, the mean over ranks; the change with its interval."""

    phase: str
    before_s: float
    after_s: float
    change_s: float
    low_s: float | None
    high_s: float | None
    verdict: str


class SettingChange(TypedDict):
    """A setting that differs; `knob` null where it has no canonical name."""

    knob: str | None
    name: str
    before: Any
    after: Any


class MetricChange(TypedDict):
    """One training metric: where the two runs part, if they do.

    `state`: identical, same (apart by no more than their noise), parted, or not enough evidence.
    """

    name: str
    state: str
    step: int | None
    before: float | None
    after: float | None
    note: str


class FixResult(TypedDict):
    """A change of settings that was predicted from the run before, and what it brought."""

    knobs: dict[str, list[Any]]
    findings: list[str]
    predicted_low_pct: float | None
    predicted_mid_pct: float | None
    predicted_high_pct: float | None
    measured_pct: float | None
    inside: bool | None
    note: str
    unpredicted: str | None


class FindingChange(TypedDict):
    """A rule that fired in one run or both: `gone`, `new` or `still`."""

    id: str
    title: str
    state: str
    severity: str


class Comparison(TypedDict):
    """The whole document."""

    schema: int
    tool: dict[str, str]
    before: Side
    after: Side
    verdict: str
    comparable: bool
    cautions: list[str]
    step_time: Change
    per_token: Change
    phases: list[PhaseChange]
    settings: list[SettingChange]
    metrics: list[MetricChange]
    fixes: list[FixResult]
    findings: list[FindingChange]
    steps: dict[str, dict[str, list[float | None]]]
