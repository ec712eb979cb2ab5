"""The four severities, and what to do with a fifth."""

from __future__ import annotations

from typing import Literal

Severity = Literal["high", "medium", "low", "info"]
SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low", "info")


def severity_class(severity: str) -> str:
    """Return the severity as a CSS class and style name; an unknown one counts as info."""
    return severity if severity in SEVERITIES else "info"
