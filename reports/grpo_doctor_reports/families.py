"""Findings by what they are about, in the order in which the gravest of each comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from grpo_doctor_reports.finding_model import Finding
from grpo_doctor_reports.severity import SEVERITIES, severity_class

_TITLES: Final = {
    "offload": "Offload",
    "rollout": "Rollout",
    "sync": "Weight sync",
    "data": "Data",
    "reward": "Reward",
    "training": "Training",
    "system": "System",
    "learning": "Learning",
    "visibility": "Visibility",
}


@dataclass(frozen=True, slots=True)
class Family:
    """Findings of one family; `key` is safe as a CSS class."""

    key: str
    title: str
    findings: list[Finding]


def families(findings: list[Finding]) -> list[Family]:
    """Return the findings grouped; within a family they keep their order."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        key = finding.family if finding.family in _TITLES else "other"
        groups.setdefault(key, []).append(finding)
    return [Family(key, _TITLES.get(key, "Other"), members) for key, members in groups.items()]


def severities(findings: list[Finding]) -> list[tuple[str, int]]:
    """Return the severities that occur, gravest first, and how often."""
    occurring = [severity_class(finding.severity) for finding in findings]
    return [(severity, count) for severity in SEVERITIES if (count := occurring.count(severity))]
