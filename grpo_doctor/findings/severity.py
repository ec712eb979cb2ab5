"""How severe a share of the step time is, and how it is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from grpo_doctor_reports import severity

Severity: TypeAlias = severity.Severity

# Shares of the step time. A fifth of a run is worth stopping it for; a twelfth is worth a flag at
# the next launch; less is worth knowing.
HIGH_SHARE = 0.20
MEDIUM_SHARE = 0.08


def severity_of(share: float, *, proven: bool = True) -> Severity:
    """How severe a cost is, given as a share of the step time; at most medium if it is a bound."""
    if share >= HIGH_SHARE and proven:
        return "high"
    return "medium" if share >= MEDIUM_SHARE else "low"


def graded(value: float, grades: Mapping[Severity, float]) -> Severity | None:
    """Return the highest severity whose threshold the value reaches; None below all."""
    return next((severity for severity, threshold in grades.items() if value >= threshold), None)


def percent(share: float, digits: int = 0) -> str:
    """Return a share as `12%`."""
    return f"{100 * share:.{digits}f}%"
