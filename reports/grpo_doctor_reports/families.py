"""Findings by what they are about, in the order in which the most severe of each comes."""

from __future__ import annotations

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


def families(findings: list[Finding]) -> dict[str, list[Finding]]:
    """Return the findings by the title of their family, in which they keep their order."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(_TITLES.get(finding.family, "Other"), []).append(finding)
    return groups


def severities(findings: list[Finding]) -> list[tuple[str, int]]:
    """Return the severities that occur, most severe first, and how often."""
    occurring = [severity_class(finding.severity) for finding in findings]
    return [(severity, count) for severity in SEVERITIES if (count := occurring.count(severity))]
