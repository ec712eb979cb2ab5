"""The document that `whatif --json` prints.

`SCHEMA` changes when a member changes its meaning or goes; new members do not change it.
"""

from __future__ import annotations

from typing import Any

from grpo_doctor_reports.schema.part import Block, Name, Part, Prose

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
