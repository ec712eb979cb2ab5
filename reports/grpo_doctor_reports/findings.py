"""Read the findings."""

from __future__ import annotations

import re

from msgspec.structs import asdict

from grpo_doctor_reports import formatting
from grpo_doctor_reports.finding_model import Finding
from grpo_doctor_reports.run_facts import any_value
from grpo_doctor_reports.schema.findings import EvidenceEntry, FindingEntry

_RULE_ID = re.compile(r"[A-Z]{2}\d{3,6}")


def read_findings(entries: list[FindingEntry]) -> list[Finding]:
    """Return the findings in the document's order, each with an anchor of its own."""
    anchors: set[str] = set()
    findings = []
    for position, entry in enumerate(entries, start=1):
        anchor = _anchor(entry.id, position, anchors)
        anchors.add(anchor)
        findings.append(Finding(anchor=anchor, **asdict(entry)))
    return findings


def _anchor(rule_id: str, position: int, used: set[str]) -> str:
    plain = rule_id if _RULE_ID.fullmatch(rule_id) else "finding"
    return plain if plain != "finding" and plain not in used else f"{plain}-{position}"


def measured(entry: EvidenceEntry) -> str:
    """Return the value of a piece of evidence with its unit, for people."""
    value = formatting.finite(entry.value)
    if value is not None:
        return formatting.quantity(value, entry.unit)
    return f"{any_value(entry.value)} {entry.unit}".strip()
