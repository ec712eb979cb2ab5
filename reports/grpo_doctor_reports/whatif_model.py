"""The predicted sets of fixes as types."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WhatIfFix:
    """One fix to tick."""

    index: int
    finding: str
    label: str
    spelling: str


@dataclass(frozen=True, slots=True)
class WhatIfSet:
    """Fixes that were replayed together, and the change of the step time in percent."""

    fixes: tuple[int, ...]
    low: float | None
    mid: float
    high: float | None


@dataclass(frozen=True, slots=True)
class UnknownFix:
    """A fix whose effect cannot be said, and why."""

    finding: str
    label: str
    reason: str


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What the fixes would bring, alone and together."""

    step_time_s: float | None
    steps: int
    law_error_pct: float | None
    fixes: list[WhatIfFix]
    sets: list[WhatIfSet]
    unknown: list[UnknownFix]
    note: str
